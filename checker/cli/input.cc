// Loads an input and words what is wrong with it.
// Relies on the readers: a program with errors is dropped, never passed on.
#include "checker/cli/input.h"

#include "checker/cli/large_pages.h"
#include "checker/cli/output.h"
#include "ir/input/read_file.h"
#include "ir/support/escape.h"
#include "rules/ops/user_rules.h"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

namespace spmd::checker {
namespace {

std::string print_error(const Input &input, const ir::InputError &error,
                        std::string_view severity) {
  auto [line, col] = std::pair(error.line, error.col);
  if (line == 0 && input.buffer)
    std::tie(line, col) = ir::line_and_column(input.bytes(), error.offset);
  std::string place = line ? fmt::format("{}:{}:{}", input.name, line, col) : input.name;
  std::string key = error.path.empty() ? "" : fmt::format(" ({})", error.path);
  return printable(
             fmt::format("{}: {}[{}]: {}{}", place, severity, error.name, error.message, key)) +
         '\n';
}

// What was read of a mapped file need not stay in memory: whoever quotes it has it mapped again.
ir::ReadOptions releasing(const ir::ReadOptions &options, const llvm::MemoryBuffer &buffer) {
  ir::ReadOptions made = options;
  if (buffer.getBufferKind() != llvm::MemoryBuffer::MemoryBuffer_MMap)
    return made;
  char *begin = const_cast<char *>(buffer.getBufferStart());
  made.progress = [before = options.progress, begin](uint64_t done, uint64_t all) {
    size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    ::madvise(begin, done / page * page, MADV_DONTNEED);
    if (before)
      before(done, all);
  };
  return made;
}

} // namespace

// What no reader can see by itself.
static void verify(Input &input, const Options &options) {
  if (!input.checkable())
    return;
  std::vector<ir::InputError> broken = ir::verify(input.read.program);
  for (ir::InputError &error : rules::verify_rules(input.read.program))
    broken.push_back(std::move(error));
  if (!broken.empty())
    input.read.errors = std::move(broken);
  if (options.allow_truncated && input.read.truncated()) {
    std::vector<ir::InputError> &warnings = input.read.warnings;
    warnings.insert(warnings.end(), input.read.errors.begin(), input.read.errors.end());
    input.read.errors.clear();
  }
}

static Input load_bytes(const std::string &path, const Options &options) {
  Input input;
  input.name = path == "-" ? kStdinName : path;
  std::string problem;
  input.buffer = ir::read_file(path, problem, options.max_input);
  if (!input.buffer) {
    input.read.errors.push_back({.name = "unreadable", .message = std::move(problem), .path = {}});
    return input;
  }
  expect_large_input(input.bytes().size());
  input.compression = ir::compression_of(input.bytes());
  if (input.compression != ir::Compression::None) {
    ir::Unpacked unpacked = ir::unpack(input.buffer->getBuffer(), options.max_input);
    expect_large_input(unpacked.bytes.size());
    input.read = ir::read_unpacked(unpacked, options.read);
    input.unpacked = std::move(unpacked.bytes);
  } else {
    input.read = ir::read_program(input.bytes(), releasing(options.read, *input.buffer));
  }
  verify(input, options);
  return input;
}

Input load(const std::string &path, const Options &options) {
  Input input = load_bytes(path, options);
  if (ir::mapped_file_was_truncated() && input.buffer) {
    // What was read is zeros in part, so nothing of it says anything.
    input.read = {};
    input.read.errors.push_back(
        {.name = "unreadable", .message = "the file became shorter while it was read", .path = {}});
    input.buffer = nullptr;
  }
  return input;
}

Input load_text(std::string name, llvm::StringRef text, const Options &options) {
  Input input;
  input.name = std::move(name);
  input.buffer = llvm::MemoryBuffer::getMemBufferCopy(text, input.name);
  input.read = ir::read_program(input.bytes(), options.read);
  verify(input, options);
  return input;
}

std::string print_input_errors(const Input &input) {
  std::string text;
  for (const ir::InputError &error : input.read.errors)
    text += print_error(input, error, "error");
  for (const ir::InputError &warning : input.read.warnings)
    text += print_error(input, warning, "warning");
  return text;
}

bool is_recorded_step(const ir::Program &program) {
  return program.mode == ir::Mode::Local && program.producer.frontend.valid() &&
         program.phase == ir::ProgramPhase::Step;
}

} // namespace spmd::checker
