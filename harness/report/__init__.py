"""What a run leaves for people and tools: verdict.json, junit.xml, the live view and the final tables."""
