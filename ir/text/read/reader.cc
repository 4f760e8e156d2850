// Entry of the text reader, and what is checked when all has been read.
#include "ir/text/read/reader.h"

#include "ir/dialect/dialect.h"
#include "ir/support/strings.h"

namespace spmd::ir {

ReadResult read_text(llvm::StringRef bytes, const ReadOptions &options) {
  ReadResult result;
  TextInput input(bytes, options, result);
  TextReader(input).read();
  return result;
}

bool TextReader::read(Statement statement) {
  switch (statement) {
  case Statement::Trace:
    return header_.read_trace();
  case Statement::File:
    return header_.read_file();
  case Statement::Symbol:
    return header_.read_symbol();
  case Statement::Rule:
    return header_.read_rule();
  case Statement::Suppress:
    return header_.read_suppress();
  case Statement::Mesh:
    return meshes_.read_mesh();
  case Statement::Group:
    return meshes_.read_group();
  case Statement::Output:
    return declarations_.read_output();
  case Statement::Function:
  case Statement::With:
  case Statement::Local:
    break; // those of TextStatementReader
  }
  return false;
}

void TextReader::read() {
  if (ir::starts_with(in_.bytes, "\xEF\xBB\xBF"))
    error(uint64_t(0), "trace-encoding", "a byte order mark stands before the program");
  else if (std::optional<uint64_t> at = first_non_utf8(in_.bytes))
    error(*at, "trace-encoding", "the bytes from here on are not UTF-8");
  if (in_.result.errors.empty())
    statements_.read_block(this);
  if (!in_.stopped)
    declarations_.check_late_gradients();
  bool whole = !in_.stopped && in_.result.errors.empty();
  if (whole) {
    need_mesh();
    begin_body();
  }
  builder_.finish();
  if (whole) {
    state_default_kinds(program_);
    header_.check_counts();
  }
  if (!in_.stopped && !in_.lost_values)
    functions_.check_functions();
  llvm::stable_sort(in_.result.errors,
                    [](const InputError &a, const InputError &b) { return a.offset < b.offset; });
}

} // namespace spmd::ir
