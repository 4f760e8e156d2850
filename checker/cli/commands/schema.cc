// `spmdlint schema`, and `spmdlint config`: what is read and written, described by itself. The
// schema of the configuration is derived from the option table.
#include "checker/cli/configuration_file.h"
#include "checker/cli/output.h"
#include "checker/render/json_text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <schemas.h> // made by embed.py

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

Json strings() { return {{"type", "array"}, {"items", {{"type", "string"}}}}; }

Json schema_of(const OptionRow &row) {
  if (row.argument.empty())
    return {{"type", "boolean"}, {"description", row.help}};
  Json types = {"string", "number"};
  if (row.reset)
    types.push_back("array");
  return {{"type", types}, {"description", row.help}};
}

std::string configuration_schema() {
  Json properties;
  properties["extend"] = {{"type", "string"}, {"description", "a file that is read first"}};
  for (const std::string &key : configuration_keys())
    if (const OptionRow *row = configured_option(key))
      properties[key] = schema_of(*row);
  properties["formats"] = strings();
  Json like = {{"type", "object"},
               {"properties", {{"like", {{"type", "string"}}}}},
               {"required", {"like"}},
               {"additionalProperties", false}};
  properties["rules"] = {{"type", "object"},
                         {"description", "typing rules of ops that are not ours"},
                         {"additionalProperties", {{"oneOf", {{{"type", "string"}}, like}}}}};
  Json text = {{"type", "string"}};
  properties["suppress"] = {
      {"type", "array"},
      {"description", "findings that are accepted"},
      {"items",
       {{"type", "object"},
        {"properties", {{"ignore", text}, {"scope", text}, {"reason", text}, {"until", text}}},
        {"required", {"ignore", "reason"}},
        {"additionalProperties", false}}}};
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "configuration of spmdlint"},
                 {"type", "object"},
                 {"properties", properties},
                 {"additionalProperties", false}};
  return print_json(schema, 2) + "\n";
}

constexpr std::pair<llvm::StringLiteral, std::string (*)()> kSchemas[] = {
    {"trace", [] { return std::string(kTraceSchema); }},
    {"output", [] { return std::string(kOutputSchema); }},
    {"config", configuration_schema}};

} // namespace

ExitCode run_schema(const Options &options) {
  if (options.arguments.size() != 1)
    return wrong_call("`schema` takes one name: trace, config or output");
  const llvm::StringRef name = options.arguments.front();
  for (const auto &[known, text] : kSchemas)
    if (name == known)
      return print_text(text());
  return wrong_call(fmt::format("no schema `{}`{}", name.str(),
                                nearest_hint(name, {"trace", "config", "output"})));
}

// `show` prints each key that a file sets; what it leaves out holds as `config init` says.
ExitCode run_config(const Options &options) {
  llvm::StringRef what = "show";
  if (!options.arguments.empty())
    what = options.arguments.front();
  if (what == "init")
    return print_text(configuration_template());
  if (what != "show" && what != "verify")
    return wrong_call(fmt::format("`config` takes show, init or verify, not `{}`{}", what.str(),
                                  nearest_hint(what, {"show", "init", "verify"})));
  std::string file = options.config_file;
  if (file.empty() && !options.isolated)
    file = find_configuration();
  if (file.empty())
    return print_text("no configuration file: the standard holds\n");
  Options read;
  if (std::string problem = read_configuration(file, {}, read); !problem.empty())
    return wrong_call(problem);
  std::string text;
  for (const std::string &each : read.configuration.files)
    text += fmt::format("{}{}\n", what == "show" ? "# " : "", ir::printable(each));
  if (what == "verify")
    return print_text(text);
  for (const auto &[key, value] : read.configuration.settings)
    text += fmt::format("{} = {}\n", key, ir::printable_lines(value));
  text += read.configuration.rules.empty() ? "" : "\n[rules]\n";
  for (const Configuration::Rule &rule : read.configuration.rules) {
    std::string right = rule.like.empty()
                            ? print_json(Json(rule.equation))
                            : fmt::format("{{ like = {} }}", print_json(Json(rule.like)));
    text += fmt::format("{} = {}\n", print_json(Json(rule.op)), right);
  }
  for (const Configuration::Suppression &row : read.configuration.suppressions) {
    text += "\n[[suppress]]\n";
    const std::pair<const char *, const std::string &> fields[] = {{"ignore", row.finding},
                                                                   {"scope", row.scope},
                                                                   {"reason", row.reason},
                                                                   {"until", row.until}};
    for (const auto &[key, value] : fields)
      if (!value.empty())
        text += fmt::format("{} = {}\n", key, print_json(Json(value)));
  }
  return print_text(text);
}

} // namespace spmd::checker
