/* How many bytes one weight-update chunk may have, and where that was written down. */
#ifndef FRAMES_H
#define FRAMES_H

#define FRAMES_CHUNK_BYTES 1048576L

static inline const char *frames_declared_in(void) { return __FILE__; }

#endif
