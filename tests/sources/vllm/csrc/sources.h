/* Where this package was compiled, as far as the compiler says. */
#ifndef SOURCES_H
#define SOURCES_H

static inline const char *sources_declared_in(void) { return __FILE__; }

#endif
