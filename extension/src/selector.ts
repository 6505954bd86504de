/** The documents that the server is told of. */
export const SELECTOR = ["file", "untitled", "vscode-notebook-cell"].flatMap((scheme) =>
  ["cuda-cpp", "python"].map((language) => ({ scheme, language })),
);
