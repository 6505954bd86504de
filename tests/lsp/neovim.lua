-- Plays a user of Neovim with the documented set-up, and writes what was seen to the file that OUT names.
local seen = {}
local buffer = vim.api.nvim_get_current_buf()

local function say(what, value) table.insert(seen, what .. "\t" .. tostring(value):gsub("\n", " ")) end

local function await(what, check) say(what, vim.wait(120000, check, 100)) end

local function ask(method, params)
  for _, answer in pairs(vim.lsp.buf_request_sync(buffer, method, params, 120000) or {}) do return answer.result end
end

local function titles()
  return vim.tbl_map(function(lens) return lens.command and lens.command.title or "" end, vim.lsp.codelens.get(buffer))
end

await("attached", function() return #vim.lsp.get_clients({ bufnr = buffer, name = "kernelmate" }) == 1 end)
await("lenses", function() return table.concat(titles(), "|"):find("%d+ regs") ~= nil end)
say("lens", table.concat(titles(), "|"))

local row
for number, line in ipairs(vim.api.nvim_buf_get_lines(buffer, 0, -1, false)) do
  if line:find("__global__") then row = number - 1 end
end
local column = vim.api.nvim_buf_get_lines(buffer, row, row + 1, false)[1]:find("row_scan") - 1
local document, here = vim.lsp.util.make_text_document_params(buffer), { line = row, character = column }
say("hover", vim.inspect(ask("textDocument/hover", { textDocument = document, position = here })))
local range = { start = here, ["end"] = here }
local asked = { textDocument = document, range = range, context = { diagnostics = {} } }
for _, action in ipairs(ask("textDocument/codeAction", asked) or {}) do say("action", action.title) end

vim.api.nvim_buf_set_lines(buffer, row + 1, row + 1, false, { "  int broken = none;" })
await("diagnosed", function() return #vim.diagnostic.get(buffer) > 0 end)
for _, one in ipairs(vim.diagnostic.get(buffer)) do say("diagnostic", one.lnum .. ":" .. one.col .. " " .. one.message) end

vim.fn.writefile(seen, os.getenv("OUT"))
vim.cmd("qa!")
