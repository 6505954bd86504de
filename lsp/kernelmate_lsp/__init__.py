"""The language server: what is known of each kernel, above it and while it is typed. `kernelmate-lsp` starts it."""
