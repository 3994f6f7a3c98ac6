"""The benchmark that sets causerie beside llama.cpp's own programs and other libraries. See benchmarks/README.md."""
