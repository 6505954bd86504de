/** The documents that the server is told of: CUDA files whatever their language is called here, CUDA and Python text. */
export const SELECTOR = ["file", "untitled", "vscode-notebook-cell"].flatMap((scheme) => [
  ...["cuda-cpp", "cuda", "python"].map((language) => ({ scheme, language })),
  { scheme, pattern: "**/*.{cu,cuh}" },
]);
