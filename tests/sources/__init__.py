"""Small sources that stand where vLLM and Dynamo stand, and the git repositories that are made of them."""
