-- For Neovim 0.11 and later: put it into ~/.config/nvim/lsp/, and `vim.lsp.enable("spmdlint")` and
-- `vim.filetype.add({ extension = { spmd = "spmd" } })` into init.lua.
return {
  cmd = { "spmdlint", "lsp" },
  filetypes = { "spmd", "python" },
  root_markers = { "spmdlint.toml", "pyproject.toml", ".git" },
}
