// `spmdlint completions SHELL` and `spmdlint man`: both are derived from the tables of commands and
// options, as the help is.
#include "checker/cli/commands/table.h"
#include "checker/cli/options.h"
#include "checker/cli/output.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

std::string names_of(uint32_t commands) {
  std::string names;
  for (const OptionRow &row : option_rows())
    if (row.commands & commands && row.name.substr(0, 2) == "--")
      names += fmt::format("{}{}", names.empty() ? "" : " ", row.name);
  return names;
}

// The words that an option or a command takes, where they are a list: `error|warning|info`.
std::vector<std::string> words_of(std::string_view argument) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  llvm::StringRef(argument.data(), argument.size()).split(words, '|');
  bool plain = words.size() > 1 && llvm::all_of(words, [](llvm::StringRef word) {
                 return !word.empty() && llvm::all_of(word, [](char c) {
                   return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                 });
               });
  std::vector<std::string> list;
  for (llvm::StringRef word : words)
    if (plain)
      list.push_back(word.str());
  return list;
}

std::vector<std::string> values_of(const OptionRow &row) {
  if (row.name != "--format" || !(row.commands & kCheck))
    return words_of(row.argument);
  std::vector<std::string> list;
  for (const Renderer &renderer : renderers())
    list.push_back(std::string(renderer.name));
  return list;
}

std::string command_names() {
  std::string names;
  for (const CommandRow &row : command_rows())
    names += fmt::format("{}{}", names.empty() ? "" : " ", row.name);
  return names;
}

// `  check) options="..."; case $before in --fail-on) words="error ..." ;; esac ;;`
std::string bash_case(const CommandRow &command) {
  std::string values;
  for (const OptionRow &row : option_rows()) {
    std::vector<std::string> words = values_of(row);
    if (row.commands & command.bit && !words.empty())
      values += fmt::format("      {}) words=\"{}\" ;;\n", row.name, llvm::join(words, " "));
  }
  std::string text = fmt::format("    {})\n      options=\"{}\" arguments=\"{}\"\n", command.name,
                                 names_of(command.bit), llvm::join(words_of(command.usage), " "));
  if (!values.empty())
    text += "      case $option in\n" + values + "      esac\n";
  return text + "      ;;\n";
}

std::string bash() {
  std::string text = "# bash completion of spmdlint, made by `spmdlint completions bash`\n"
                     "_spmdlint() {\n"
                     "  local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD-1]} "
                     "word command=check\n"
                     "  local options='' arguments='' words=''\n"
                     "  if [[ $option == = ]]; then option=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                     "  if [[ $cur == = ]]; then cur=''; fi\n"
                     "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
                     "    case $word in\n";
  std::string names = command_names();
  std::string alternatives = names;
  std::replace(alternatives.begin(), alternatives.end(), ' ', '|');
  text += fmt::format("      {}) command=$word; break ;;\n", alternatives);
  text += "    esac\n  done\n  case $command in\n";
  for (const CommandRow &row : command_rows())
    text += bash_case(row);
  text += fmt::format(
      "  esac\n"
      "  if [[ -n $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return; fi\n"
      "  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return; fi\n"
      "  if ((COMP_CWORD == 1)); then arguments=\"{}\"; fi\n"
      "  COMPREPLY=($(compgen -W \"$arguments\" -- \"$cur\") $(compgen -f -- \"$cur\"))\n"
      "}}\n"
      "complete -o filenames -F _spmdlint spmdlint\n",
      names);
  return text;
}

// The functions of bash do in zsh, too.
std::string zsh() {
  return "#compdef spmdlint\n# made by `spmdlint completions zsh`\n"
         "autoload -U +X bashcompinit && bashcompinit\n" +
         bash();
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text)
    out += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return out + "'";
}

std::string fish() {
  std::string text = "# fish completion of spmdlint, made by `spmdlint completions fish`\n";
  for (const CommandRow &command : command_rows())
    text += fmt::format("complete -c spmdlint -n __fish_use_subcommand -a {} -d {}\n", command.name,
                        fish_quoted(command.help));
  for (const CommandRow &command : command_rows()) {
    std::string when = fmt::format("-n '__fish_seen_subcommand_from {}'", command.name);
    if (std::vector<std::string> words = words_of(command.usage); !words.empty())
      text += fmt::format("complete -c spmdlint {} -f -a {}\n", when,
                          fish_quoted(llvm::join(words, " ")));
    for (const OptionRow &row : option_rows()) {
      if (!(row.commands & command.bit) || row.name.substr(0, 2) != "--")
        continue;
      std::vector<std::string> words = values_of(row);
      text += fmt::format("complete -c spmdlint {} -l {}{}{} -d {}\n", when, row.name.substr(2),
                          row.argument.empty() ? "" : " -r",
                          words.empty() ? "" : " -f -a " + fish_quoted(llvm::join(words, " ")),
                          fish_quoted(row.help));
    }
  }
  return text;
}

// Text in a manual page: a backslash, a hyphen and a dot at the beginning of a line mean
// themselves.
std::string roff(std::string_view text) {
  std::string out;
  for (char c : text)
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string{c};
  return out.substr(0, 1) == "." || out.substr(0, 1) == "'" ? "\\&" + out : out;
}

std::string manual_options(uint32_t commands) {
  std::string text;
  for (const OptionRow &row : option_rows()) {
    if (!(row.commands & commands))
      continue;
    std::string head = fmt::format("\\fB{}\\fR", roff(row.name));
    if (!row.argument.empty())
      head += fmt::format("{}\\fI{}\\fR", row.name.size() > 2 ? "=" : " ", roff(row.argument));
    text += fmt::format(".TP\n{}\n{}{}\n", head, roff(row.help),
                        row.standard.empty() ? "" : roff(fmt::format(" ({})", row.standard)));
  }
  return text;
}

std::string manual() {
  std::string text = fmt::format(
      ".TH SPMDLINT 1 \"\" \"spmdlint {}\"\n.SH NAME\nspmdlint \\- a static type checker for SPMD "
      "tensor programs\n.SH SYNOPSIS\n\\fBspmdlint\\fR [\\fICOMMAND\\fR] [\\fIOPTION\\fR]... "
      "[\\fIARGUMENT\\fR]...\n.SH COMMANDS\n",
      kVersion);
  for (const CommandRow &row : command_rows())
    text +=
        fmt::format(".TP\n\\fB{}\\fR {}\n{}\n", roff(row.name), roff(row.usage), roff(row.help));
  for (const CommandRow &row : command_rows()) {
    if (row.bit == kPlain)
      continue;
    text += fmt::format(".SH OPTIONS OF {}\n{}", llvm::StringRef(std::string(row.name)).upper(),
                        manual_options(row.bit));
    if (!(row.bit & kCheck))
      continue;
    text += ".SS Formats\n";
    for (const Renderer &renderer : renderers())
      text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(renderer.name), roff(renderer.help));
  }
  text += ".SH EXIT STATUS\n";
  for (const ExitCodeInfo &row : kExitCodes)
    text +=
        fmt::format(".TP\n\\fB{}\\fR\n{}\n", static_cast<unsigned>(row.code), roff(row.meaning));
  return text;
}

} // namespace

ExitCode run_completions(const Options &options) {
  const std::pair<std::string_view, std::string (*)()> shells[] = {
      {"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  for (const auto &[name, print] : shells)
    if (options.arguments.size() == 1 && options.arguments.front() == name)
      return print_text(print());
  say("`completions` takes one of bash, zsh, fish");
  return ExitCode::Call;
}

ExitCode run_man(const Options &) { return print_text(manual()); }

} // namespace spmd::checker
