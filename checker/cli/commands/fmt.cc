// `spmdlint fmt`: writes programs in canonical form, in place or converted to another encoding.
// A file that cannot be read, or whose comments would be lost, is left alone.
#include "checker/cli/input.h"
#include "checker/cli/output.h"

#include "ir/input/compression.h"
#include "ir/structure/outline.h"
#include "ir/text/comments.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

// Lines without comments and without what is blank.
std::string bare_lines(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 64> lines;
  text.split(lines, '\n');
  std::string out;
  for (llvm::StringRef line : lines)
    if (llvm::StringRef bare = line.take_front(ir::comment_start(line)).rtrim(); !bare.empty())
      out += bare.str() + '\n';
  return out;
}

bool has_comment(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 64> lines;
  text.split(lines, '\n');
  return llvm::any_of(
      lines, [](llvm::StringRef line) { return ir::comment_start(line) != llvm::StringRef::npos; });
}

const ir::Format &target_format(const Options &options, llvm::StringRef bytes) {
  for (const ir::Format &format : ir::formats())
    if (format.name == options.to)
      return format;
  return ir::format_of(bytes);
}

// What is canonical may have comments.
bool is_canonical(llvm::StringRef bytes, llvm::StringRef canonical) {
  if (bytes == canonical)
    return true;
  return ir::format_of(bytes).by_hand && bare_lines(bytes) == bare_lines(canonical);
}

ExitCode say_and(ExitCode code, const std::string &text) {
  say(text);
  return code;
}

ExitCode compare(const Input &input, const std::string &canonical) {
  if (is_canonical(input.bytes(), canonical))
    return ExitCode::Clean;
  return say_and(ExitCode::Findings, input.name + ": not canonical");
}

ExitCode format_one(const Options &options, const std::string &path) {
  Input input = load(path, options);
  print_stderr(print_input_errors(input));
  if (!input.readable())
    return ExitCode::Input;
  if (options.outline)
    ir::outline(input.read.program);
  std::string text = target_format(options, input.bytes()).print(input.read.program);
  if (options.compare_only)
    return compare(input, text);
  bool to_stdout = options.output_file == "-" || (options.output_file.empty() && path == "-");
  bool in_place = options.output_file.empty() && !to_stdout;
  if (in_place && is_canonical(input.bytes(), text))
    return ExitCode::Clean;
  if (in_place && ir::format_of(input.bytes()).by_hand && has_comment(input.bytes()))
    return say_and(ExitCode::Call,
                   input.name + ": its comments would be lost; -o OUT writes to another file");
  ir::Compression compression = in_place || options.output_file.empty()
                                    ? input.compression
                                    : ir::compression_named(options.output_file);
  std::optional<std::string> packed = ir::pack(std::move(text), compression);
  if (!packed)
    return say_and(ExitCode::Call, input.name + ": no memory is left to compress it");
  std::string problem = to_stdout ? write_stdout(*packed)
                                  : write_file(in_place ? path : options.output_file, *packed);
  return problem.empty() ? ExitCode::Clean : say_and(ExitCode::Call, problem);
}

} // namespace

ExitCode run_fmt(const Options &options) {
  if (options.arguments.empty())
    return say_and(ExitCode::Call, "`fmt` takes one file or more");
  if (!options.output_file.empty() && options.arguments.size() > 1)
    return say_and(ExitCode::Call, "option `-o` takes one file");
  if (!options.to.empty() && options.output_file.empty() && options.arguments.front() != "-")
    return say_and(ExitCode::Call, "option `--to` needs `-o OUT`");
  ExitCode code = ExitCode::Clean;
  for (const std::string &path : options.arguments)
    code = worse(code, format_one(options, path));
  return code;
}

} // namespace spmd::checker
