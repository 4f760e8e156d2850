// Reads the configuration with toml++ and hands each key to the option of that name.
// Relies on the option table for names, forms and errors.
#include "checker/cli/configuration_file.h"

#include "checker/cli/output.h"

#include "ir/input/read_file.h"
#include "ir/support/arrays.h"
#include "ir/support/format.h"
#include "ir/text/lexer.h"
#include "rules/ops/registry.h"
#include "rules/ops/user_rules.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <sstream>

namespace spmd::checker {
namespace {

namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

constexpr unsigned kMaxExtends = 16;
constexpr uint64_t kMaxFile = uint64_t(1) << 20; // bytes
// toml++ recurses once per part of a key.
constexpr size_t kMaxDots = 64; // on one line, outside of strings

bool is_configured(const OptionRow &row) {
  return row.commands & (kCheck | kGate) && row.name.substr(0, 2) == "--" && !row.command_line_only;
}

// The first line with more dots outside of strings than a key may have; 0: none has.
size_t overlong_key(llvm::StringRef text) {
  size_t number = 0;
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    ++number;
    size_t dots = 0;
    char open = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      char c = line[i];
      if (open == '"' && c == '\\')
        ++i;
      else if (open)
        open = c == open ? 0 : open;
      else if (c == '"' || c == '\'')
        open = c;
      else if (c == '#')
        break;
      else
        dots += c == '.';
    }
    if (dots > kMaxDots)
      return number;
  }
  return 0;
}

class ConfigurationReader {
public:
  ConfigurationReader(const std::vector<std::string> &given, Options &options)
      : given_(given), options_(options) {}

  // False once something is wrong.
  bool read(const std::string &file);
  std::string problem;

private:
  bool fail(const toml::node &node, std::string message) {
    problem = fmt::format("{}:{}: {}", file_, node.source().begin.line, message);
    return false;
  }
  bool section(const toml::table &table);
  bool extend(const toml::node &node);
  bool key(llvm::StringRef name, const toml::node &node);
  bool option(const OptionRow &row, llvm::StringRef name, const toml::node &node);
  bool value(const OptionRow &row, llvm::StringRef name, const toml::node &node);
  bool rules(const toml::node &node);
  bool rule(llvm::StringRef op, const toml::node &node);
  bool suppressions(const toml::node &node);
  bool suppression(const toml::node &node);

  const std::vector<std::string> &given_;
  Options &options_;
  std::string file_;
};

bool ConfigurationReader::read(const std::string &file) {
  file_ = file;
  if (options_.configuration.files.size() >= kMaxExtends) {
    problem = fmt::format("{}: more than {} files extend one another", file, kMaxExtends);
    return false;
  }
  std::unique_ptr<llvm::MemoryBuffer> bytes = ir::read_file(file, problem, kMaxFile);
  if (!bytes) {
    problem = fmt::format("{}: {}", file, problem);
    return false;
  }
  if (size_t line = overlong_key(bytes->getBuffer())) {
    problem = fmt::format("{}:{}: a key has more than {} parts", file, line, kMaxDots);
    return false;
  }
  toml::parse_result parsed = toml::parse(bytes->getBuffer(), file);
  if (!parsed) {
    problem = fmt::format("{}:{}: {}", file, parsed.error().source().begin.line,
                          parsed.error().description());
    return false;
  }
  const toml::table &whole = parsed.table();
  bool project = path::filename(file) == "pyproject.toml";
  const toml::table *table = whole.at_path("tool.spmdlint").as_table();
  if (!project && !table)
    table = &whole;
  return !table || section(*table);
}

bool ConfigurationReader::section(const toml::table &table) {
  if (const toml::node *base = table.get("extend"); base && !extend(*base))
    return false;
  options_.configuration.files.push_back(file_);
  for (const auto &[name, node] : table)
    if (!key(llvm::StringRef(name.data(), name.length()), node))
      return false;
  return true;
}

bool ConfigurationReader::extend(const toml::node &node) {
  const auto *base = node.as_string();
  if (!base)
    return fail(node, "`extend` takes the path of a file");
  llvm::SmallString<256> beside(path::parent_path(file_));
  path::append(beside, llvm::StringRef(base->get()));
  ConfigurationReader reader(given_, options_);
  bool absolute = path::is_absolute(llvm::StringRef(base->get()));
  // The chain is counted before it is followed: a file may name itself.
  options_.configuration.files.push_back(file_);
  bool fine = reader.read(absolute ? base->get() : beside.str().str());
  ir::erase_value(options_.configuration.files, file_);
  if (!fine)
    problem = std::move(reader.problem);
  return fine;
}

bool ConfigurationReader::key(llvm::StringRef name, const toml::node &node) {
  if (name == "extend")
    return true;
  if (name == "rules")
    return rules(node);
  if (name == "suppress")
    return suppressions(node);
  if (const OptionRow *row = configured_option(name))
    return option(*row, name, node);
  if (llvm::any_of(option_rows(), [&](const OptionRow &row) {
        return row.command_line_only && row.name == "--" + name.str();
      }))
    return fail(node, fmt::format("`{}` is given on the command line only", name));
  std::vector<std::string> keys = configuration_keys();
  llvm::SmallVector<llvm::StringRef, 40> known(keys.begin(), keys.end());
  return fail(node, fmt::format("unknown key `{}`{}", name, nearest_hint(name, known)));
}

bool ConfigurationReader::option(const OptionRow &row, llvm::StringRef name,
                                 const toml::node &node) {
  if (llvm::is_contained(given_, std::string(row.name)))
    return true;
  std::ostringstream text;
  node.visit([&](const auto &value) { text << value; });
  auto &settings = options_.configuration.settings;
  llvm::erase_if(settings, [&](const auto &known) { return known.first == name; });
  settings.push_back({name.str(), text.str()});
  if (row.argument.empty()) {
    const auto *on = node.as_boolean();
    if (!on)
      return fail(node, fmt::format("`{}` takes true or false", name));
    if (on->get())
      row.set(options_, "");
    return true;
  }
  if (row.reset)
    row.reset(options_);
  const toml::array *list = node.as_array();
  if (!list)
    return value(row, name, node);
  for (const toml::node &each : *list)
    if (!value(row, name, each))
      return false;
  return true;
}

bool ConfigurationReader::value(const OptionRow &row, llvm::StringRef name,
                                const toml::node &node) {
  std::string text;
  if (const auto *string = node.as_string())
    text = string->get();
  else if (const auto *integer = node.as_integer())
    text = std::to_string(integer->get());
  else if (const auto *real = node.as_floating_point())
    text = fmt::format("{}", real->get());
  else
    return fail(node, fmt::format("`{}` takes {}", name, row.argument));
  std::string wrong = row.set(options_, text);
  if (wrong.empty() && row.name == "--format" && !options_.formats.back().file.empty())
    wrong = "a file to write is named on the command line only";
  return wrong.empty() || fail(node, fmt::format("`{}`: {}", name, wrong));
}

bool ConfigurationReader::rules(const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return fail(node, "`rules` is a table of ops and their equations");
  for (const auto &[op, value] : *table)
    if (!rule(llvm::StringRef(op.data(), op.length()), value))
      return false;
  return true;
}

// Checked like the rule of a program, in a program that has no other.
bool ConfigurationReader::rule(llvm::StringRef op, const toml::node &node) {
  Configuration::Rule made{op.str(), {}, {}};
  const toml::table *table = node.as_table();
  if (const auto *equation = node.as_string())
    made.equation = equation->get();
  else if (const auto *like =
               table && table->size() == 1 ? table->get_as<std::string>("like") : nullptr)
    made.like = like->get();
  else
    return fail(node,
                fmt::format("the rule of `{}` is no equation, and not {{ like = \"OP\" }}", op));
  ir::Program program;
  Configuration alone{{made}, {}, {}};
  alone.add_to(program);
  if (std::vector<ir::InputError> errors = rules::verify_rules(program); !errors.empty())
    return fail(node, errors.front().message);
  llvm::erase_if(options_.configuration.rules,
                 [&](const Configuration::Rule &known) { return known.op == made.op; });
  options_.configuration.rules.push_back(std::move(made));
  return true;
}

bool ConfigurationReader::suppressions(const toml::node &node) {
  const toml::array *list = node.as_array();
  if (!list)
    return fail(node, "`suppress` is a list of tables");
  for (const toml::node &each : *list)
    if (!suppression(each))
      return false;
  return true;
}

bool ConfigurationReader::suppression(const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return fail(node, "`suppress` is a list of tables");
  Configuration::Suppression made;
  const std::pair<std::string_view, std::string *> keys[] = {{"ignore", &made.finding},
                                                             {"scope", &made.scope},
                                                             {"reason", &made.reason},
                                                             {"until", &made.until}};
  for (const auto &member : *table) {
    std::string_view name = member.first.str();
    const toml::node &value = member.second;
    const auto *known = llvm::find_if(keys, [&](const auto &key) { return key.first == name; });
    const auto *text = value.as_string();
    if (known == std::end(keys))
      return fail(value, fmt::format("unknown key `{}` of `suppress`", name));
    if (!text)
      return fail(value, fmt::format("`{}` takes a string", name));
    *known->second = text->get();
  }
  if (!rules::find_violation(made.finding))
    return fail(node, fmt::format("no finding is named `{}`", made.finding));
  if (made.reason.empty())
    return fail(node, "`reason` is missing");
  if (!made.until.empty() && !ir::is_date(made.until))
    return fail(node, fmt::format("`{}` is no date of the form YYYY-MM-DD", made.until));
  options_.configuration.suppressions.push_back(std::move(made));
  return true;
}

// The first file of that kind in a folder or above it.
std::string above(llvm::StringRef folder) {
  llvm::SmallString<256> at(folder);
  if (fs::make_absolute(at))
    return "";
  path::remove_dots(at, /*remove_dot_dot=*/true);
  llvm::StringRef start = at;
  for (llvm::StringRef here = start; !here.empty(); here = path::parent_path(here)) {
    // Beside the caller the name alone says where it is.
    llvm::StringRef prefix = here == start && folder == "." ? llvm::StringRef() : here;
    llvm::SmallString<256> file(prefix);
    path::append(file, "spmdlint.toml");
    if (fs::is_regular_file(file))
      return file.str().str();
    file = prefix;
    path::append(file, "pyproject.toml");
    std::string problem;
    if (fs::is_regular_file(file))
      if (std::unique_ptr<llvm::MemoryBuffer> bytes =
              ir::read_file(file.str().str(), problem, kMaxFile);
          bytes && bytes->getBuffer().contains("tool.spmdlint"))
        return file.str().str();
  }
  return "";
}

} // namespace

const OptionRow *configured_option(llvm::StringRef key) {
  std::string name = "--" + (key == "formats" ? std::string("format") : key.str());
  for (const OptionRow &row : option_rows())
    if (is_configured(row) && row.name == name)
      return &row;
  return nullptr;
}

std::vector<std::string> configuration_keys() {
  std::vector<std::string> known = {"rules", "suppress", "extend"};
  for (const OptionRow &row : option_rows())
    if (is_configured(row))
      known.push_back(std::string(row.name.substr(2)));
  return known;
}

void Configuration::add_to(ir::Program &program) const {
  auto string = [&](const std::string &text) {
    return text.empty() ? ir::StringId() : program.strings.add(text);
  };
  for (const Rule &rule : rules) {
    ir::StringId op = string(rule.op);
    bool stated =
        llvm::any_of(program.rules, [&](const ir::UserRule &own) { return own.op == op; });
    if (!stated)
      program.rules.push_back({.op = op,
                               .equation = string(rule.equation),
                               .like = string(rule.like),
                               .configured = true});
  }
  for (const Suppression &row : suppressions)
    program.suppressions.push_back({.finding = string(row.finding),
                                    .scope = string(row.scope),
                                    .loc = {},
                                    .reason = string(row.reason),
                                    .until = string(row.until),
                                    .configured = true});
}

std::string find_configuration() { return above("."); }

std::string configuration_above_input(const Options &options) {
  if (options.arguments.empty() || options.arguments.front() == "-")
    return "";
  const std::string &input = options.arguments.front();
  return above(is_folder(input) ? llvm::StringRef(input) : path::parent_path(input));
}

std::string read_configuration(const std::string &file, const std::vector<std::string> &given,
                               Options &options) {
  ConfigurationReader reader(given, options);
  return reader.read(file) ? "" : reader.problem;
}

std::string parse_call(llvm::ArrayRef<llvm::StringRef> words, const CommandRow &command,
                       Options &options) {
  Options called;
  if (std::string problem = parse_options(words, command, called);
      !problem.empty() || called.help || !(command.bit & (kTyped)) || called.isolated) {
    options = std::move(called);
    return problem;
  }
  std::string file = called.config_file.empty() ? find_configuration() : called.config_file;
  if (file.empty() && !called.quiet)
    if (std::string beside = configuration_above_input(called); !beside.empty())
      say(fmt::format("note: {} lies beside the input only and is not used; --config={} does",
                      beside, beside));
  if (!file.empty())
    if (std::string problem = read_configuration(file, called.given, options); !problem.empty())
      return problem;
  return parse_options(words, command, options);
}

std::string configuration_template() {
  std::string text = "# Keys are the options of `spmdlint check`; the command line wins.\n"
                     "# As `[tool.spmdlint]` they may stand in pyproject.toml.\n\n"
                     "# extend = \"base.toml\"  # read first\n";
  for (const OptionRow &row : option_rows()) {
    if (!is_configured(row))
      continue;
    // `NAME[:FILE]`: the file is not for a configuration.
    std::string value = row.argument.empty()
                            ? std::string("false")
                            : fmt::format("\"{}\"", row.argument.substr(0, row.argument.find('[')));
    std::string line = fmt::format("# {} = {}", row.name.substr(2), value);
    text += fmt::format("{:<44} # {}{}\n", line, row.help,
                        row.standard.empty() ? "" : fmt::format(" ({})", row.standard));
  }
  return text + "\n# [rules]\n"
                "# \"mylib.swiglu\" = \"f(g[...]) * u[...] -> [...]\"\n"
                "# \"mylib.gelu\" = { like = \"gelu\" }\n\n"
                "# [[suppress]]\n"
                "# ignore = \"needless-partial\"\n"
                "# scope = \"layers.*.rope\"\n"
                "# reason = \"the cache is small\"\n"
                "# until = \"2030-01-31\"\n";
}

} // namespace spmd::checker
