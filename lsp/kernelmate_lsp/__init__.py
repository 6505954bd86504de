"""Language server: shows verdicts, resources and rewrites of kernels in the editor. `kernelmate-lsp` starts it."""
