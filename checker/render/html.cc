// One page that needs nothing else: what was found, what was judged, what is communicated, and the
// program. Everything but the list of the program is there without a script.
#include "checker/render/facts.h"

#include "checker/render/module_picture.h"
#include "checker/render/page_data.h"
#include "checker/report/communication.h"

#include <page.h> // page/page.css and page/page.js

#include "ir/mesh/symbols.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::checker {
namespace {

std::string html(llvm::StringRef text) {
  std::string out;
  for (char c : ir::printable_lines(text))
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  return out;
}

// Messages put code between backticks.
std::string message_html(llvm::StringRef text) {
  std::string out;
  bool code = false;
  llvm::SmallVector<llvm::StringRef, 8> parts;
  text.split(parts, '`');
  for (size_t i = 0; i < parts.size(); ++i, code = !code)
    out += code && i + 1 < parts.size() ? "<code>" + html(parts[i]) + "</code>" : html(parts[i]);
  return out;
}

struct Page {
  llvm::ArrayRef<Report> reports;
  SourceCache &sources;
  const RenderOptions &options;
  llvm::raw_ostream &out;
  Totals totals = {};
  std::vector<std::string> data = {}; // per input, for the script
};

std::string plural(uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

// Where a place is shown in the list of the program; empty of what is no instruction.
std::string link_to(size_t input, const Place &place) {
  return place.form == Place::Form::Inst ? fmt::format("#op-{}-{}", input, place.index) : "";
}

std::string linked(const Report &report, size_t input, const Place &place) {
  std::string text = html(print(locate(report, place))), link = link_to(input, place);
  return link.empty() ? text : fmt::format("<a href=\"{}\">{}</a>", link, text);
}

// --- findings ------------------------------------------------------------------------------------

// Byte offset of a column, which counts code points from 1.
size_t byte_at(llvm::StringRef line, unsigned col) {
  size_t at = 0;
  for (unsigned point = 1; point < col && at < line.size(); ++point)
    for (++at; at < line.size() && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80;)
      ++at;
  return at;
}

void print_quote(Page &page, const Quote &quote) {
  constexpr size_t kMost = 400;
  llvm::StringRef line = quote.line;
  size_t from = quote.col ? byte_at(line, quote.col) : 0;
  size_t to =
      quote.end_col > quote.col ? byte_at(line, quote.end_col) : byte_at(line, quote.col + 1);
  if (!quote.col)
    to = 0;
  // A line of a trace may be the whole trace.
  size_t first = from > kMost / 2 && line.size() > kMost ? from - kMost / 2 : 0;
  size_t last = std::min(line.size(), first + kMost);
  to = std::min(to, last);
  page.out << "<pre class=\"quote\">";
  if (quote.number)
    page.out << "<span class=\"number\">" << quote.number << "</span>";
  page.out << (first ? "…" : "") << html(line.slice(first, from));
  if (to > from)
    page.out << "<mark>" << html(line.slice(from, to)) << "</mark>";
  page.out << html(line.slice(std::max(from, to), last)) << (last < line.size() ? "…" : "")
           << "</pre>\n";
}

void print_types(Page &page, const std::vector<Fact> &facts) {
  std::string rows;
  for (const Fact &fact : facts)
    if (fact.form == Fact::Form::Type)
      rows += fmt::format("<tr><td class=\"mono\">{}</td><td class=\"mono type\">{}</td></tr>\n",
                          html(fact.label), html(fact.text));
  if (!rows.empty())
    page.out << "<table class=\"types\">" << rows << "</table>\n";
}

void print_path(Page &page, const Report &report, size_t input, const std::vector<Fact> &facts) {
  std::string rows;
  for (const Fact &fact : facts)
    if (fact.note) {
      const Note &note = *fact.note;
      rows += fmt::format("<li><b>{}</b>{}{}</li>\n", kNoteWords[static_cast<unsigned>(note.form)],
                          note.has_place ? linked(report, input, note.place) + ": " : "",
                          message_html(fact.text));
    } else if (fact.form == Fact::Form::Callers) {
      rows += fmt::format("<li>{}</li>\n", html(fact.text));
    }
  if (!rows.empty())
    page.out << "<ul class=\"path\">" << rows << "</ul>\n";
}

void print_fixes(Page &page, const std::vector<Fact> &facts) {
  std::string rows, rest;
  for (const Fact &fact : facts)
    if (fact.fix)
      rows += fmt::format(
          "<li><span class=\"tag\">fix</span><code title=\"{}\">{}</code><span class=\"price\">{}{}"
          "{}</span></li>\n",
          html(fact.fix->replacement), html(fact.text), fact.price, fact.backward,
          fact.fix->changes_value ? " (changes the value)" : "");
    else if (fact.form == Fact::Form::Rest)
      rest += fmt::format("<p class=\"more\">{}</p>\n", html(fact.line()));
  if (!rows.empty())
    page.out << "<ul class=\"fixes\">" << rows << "</ul>\n";
  page.out << rest;
}

void print_places(Page &page, const Report &report, size_t input, const Diagnostic &diagnostic) {
  constexpr size_t kMost = 200;
  if (diagnostic.places.size() < 2)
    return;
  page.out << "<details class=\"more\"><summary>all " << diagnostic.places.size()
           << " places</summary>";
  for (const Place &place : llvm::ArrayRef(diagnostic.places).take_front(kMost)) {
    std::string scope = locate(report, place).scope;
    page.out << "<div>" << linked(report, input, place)
             << (scope.empty() ? "" : " in " + html(scope)) << "</div>\n";
  }
  if (diagnostic.places.size() > kMost)
    page.out << "<div>and " << diagnostic.places.size() - kMost << " more</div>\n";
  page.out << "</details>\n";
}

void print_manual(Page &page, const rules::DiagnosticInfo &info) {
  auto trimmed = [](std::string_view text) {
    return html(llvm::StringRef(text.data(), text.size()).trim());
  };
  page.out << "<details class=\"manual\"><summary>what it means</summary><p>"
           << trimmed(info.explain) << "</p>";
  if (!info.wrong.empty())
    page.out << "<p class=\"more\">A program that has it, and its repair:</p><pre>"
             << trimmed(info.wrong) << "</pre><pre>" << trimmed(info.right) << "</pre>";
  page.out << "</details>\n";
}

void print_finding(Page &page, size_t input, size_t number) {
  const Report &report = page.reports[input];
  const Diagnostic &diagnostic = report.diagnostics[number];
  const Finding &finding = *diagnostic.first;
  std::string_view severity = rules::kSeverityWords[static_cast<unsigned>(finding.severity())];
  SourcePlace place = locate(report, finding.place);
  std::string where = html(print(place));
  if (!place.scope.empty())
    where += " in " + html(place.scope);
  if (diagnostic.places.size() > 1)
    where += fmt::format(", and {}", plural(diagnostic.places.size() - 1, "more place"));
  std::string link = link_to(input, finding.place);
  page.out << fmt::format(
      "<details class=\"panel finding {}\" id=\"finding-{}-{}\"{}><summary><span>"
      "<span class=\"badge {}\">{}</span>{}</span><span "
      "class=\"where\">{}{}</span></summary><div>\n",
      finding.suppressed ? "suppressed" : severity, input, number,
      finding.suppressed ? "" : " open", finding.suppressed ? "suppressed" : severity,
      finding.info().name, message_html(message_of(*report.program, finding)), where,
      link.empty() ? "" : fmt::format(" · <a href=\"{}\">in the program</a>", link));
  if (finding.suppressed)
    page.out << "<p class=\"more\">accepted: " << html(finding.reason) << "</p>\n";
  std::vector<Fact> facts = facts_of(report, diagnostic);
  if (std::optional<Quote> quote = quote_of(report, diagnostic, page.sources))
    print_quote(page, *quote);
  print_types(page, facts);
  print_path(page, report, input, facts);
  print_fixes(page, facts);
  print_places(page, report, input, diagnostic);
  print_manual(page, finding.info());
  page.out << "</div></details>\n";
}

struct Shown {
  size_t input, number;
};

// By the file that they stand in, files in the order of their first finding.
std::vector<std::pair<std::string, std::vector<Shown>>> by_file(const Page &page, bool suppressed) {
  std::vector<std::pair<std::string, std::vector<Shown>>> files;
  std::map<std::string, size_t> known;
  for (size_t input = 0; input < page.reports.size(); ++input)
    for (size_t i = 0; i < page.reports[input].diagnostics.size(); ++i) {
      const Finding &finding = *page.reports[input].diagnostics[i].first;
      if (finding.suppressed != suppressed)
        continue;
      std::string path = locate(page.reports[input], finding.place).path;
      auto [at, fresh] = known.try_emplace(path, files.size());
      if (fresh)
        files.push_back({path, {}});
      files[at->second].second.push_back({input, i});
    }
  return files;
}

void print_findings(Page &page) {
  page.out << "<h2 id=\"findings\">Findings</h2>\n";
  auto files = by_file(page, /*suppressed=*/false);
  if (files.empty())
    page.out << "<div class=\"panel empty\">"
             << (page.totals.unjudged || page.totals.unread
                     ? "No finding, but not everything was judged: see what is below."
                     : "No finding.")
             << "</div>\n";
  else
    page.out << "<div class=\"tools right\"><button id=\"fold\">open or close all</button></div>\n";
  if (files.empty())
    page.out << "<button id=\"fold\" hidden></button>";
  for (const auto &[path, findings] : files) {
    page.out << "<details class=\"file\" open><summary>" << html(path) << " <small>"
             << plural(findings.size(), "finding") << "</small></summary>\n";
    for (const Shown &each : findings)
      print_finding(page, each.input, each.number);
    page.out << "</details>\n";
  }
  if (page.totals.cut)
    page.out << "<p class=\"more\">" << page.totals.cut
             << " more are not shown (--max-findings).</p>\n";
  for (const auto &[path, findings] : by_file(page, /*suppressed=*/true)) {
    page.out << "<details class=\"file\"><summary>" << html(path) << " <small>"
             << plural(findings.size(), "accepted finding") << "</small></summary>\n";
    for (const Shown &each : findings)
      print_finding(page, each.input, each.number);
    page.out << "</details>\n";
  }
}

// --- what was judged -----------------------------------------------------------------------------

void print_card(Page &page, const std::string &number, const std::string &text,
                std::optional<double> percent = std::nullopt) {
  page.out << "<div class=\"card\"><b>" << number << "</b><span>" << html(text) << "</span>";
  if (percent)
    page.out << fmt::format("<div class=\"bar\"><i class=\"{}\" style=\"width:{:.1f}%\"></i></div>",
                            *percent >= 100 ? "full" : "part", *percent);
  page.out << "</div>\n";
}

std::string meshes_of(const Report &report) {
  std::string text;
  for (const ir::Mesh &mesh : report.program->meshes)
    for (const ir::Axis &axis : mesh.axes)
      if (!axis.flattened)
        text += fmt::format("{}{} {}", text.empty() ? "" : " × ",
                            report.program->strings[axis.name].str(),
                            ir::print_ranks(*report.program, axis.size()));
  return text;
}

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 100 : 100.0 * double(part) / double(whole);
}

// The first words of the page, and their class: what is not known is never green.
std::pair<std::string, std::string_view> verdict(const Totals &totals) {
  std::string text;
  auto add = [&](uint64_t count, std::string_view one) {
    if (count)
      text += (text.empty() ? "" : ", ") + plural(count, one);
  };
  add(totals.errors, "error");
  add(totals.warnings, "warning");
  if (totals.unread)
    text += fmt::format("{}{} not read", text.empty() ? "" : ", ", plural(totals.unread, "input"));
  if (text.empty())
    text = totals.unjudged ? "Nothing was judged" : "No findings";
  if (totals.errors || totals.unread)
    return {text, "bad"};
  return {text, totals.warnings || totals.unjudged ? "unsure" : "good"};
}

void print_summary(Page &page) {
  const Totals &totals = page.totals;
  auto [words, form] = verdict(totals);
  page.out << fmt::format("<h1 class=\"verdict {}\">{}</h1>\n", form, words);
  std::string meshes;
  for (const Report &report : page.reports)
    if (report.program && page.reports.size() == 1)
      meshes = meshes_of(report);
  page.out << "<p class=\"sub\">" << html(counts_line(totals))
           << (meshes.empty() ? "" : " · mesh " + html(meshes)) << "</p>\n<div class=\"cards\">\n";
  print_card(page, fmt::format("{}", totals.ops),
             totals.inputs == 1 ? "ops" : fmt::format("ops in {} inputs", totals.inputs));
  print_card(page, fmt::format("{:.1f} %", std::floor(totals.coverage() * 10) / 10),
             "of the ops typed", totals.coverage());
  if (totals.values)
    print_card(
        page,
        fmt::format("{:.1f} %",
                    std::floor(percent(totals.values - totals.unknown_values, totals.values) * 10) /
                        10),
        "of the values known on every axis",
        percent(totals.values - totals.unknown_values, totals.values));
  for (const Totals::Proved &of : totals.proved)
    for (const CheckCoverage::Proof &proof : of.axes)
      print_card(page, fmt::format("{} / {}", proof.proved, of.all),
                 fmt::format("{} proved on {}", of.what, proof.axis),
                 percent(proof.proved, of.all));
  if (totals.confirmed)
    print_card(page, fmt::format("{} / {}", totals.confirmed, totals.gradients().all),
               "gradients confirmed by a run", percent(totals.confirmed, totals.gradients().all));
  page.out << "</div>\n";
}

// What a clean page does not say.
void print_coverage(Page &page) {
  page.out << "<h2 id=\"coverage\">What was judged</h2>\n<div class=\"panel\"><table><tr><th>input"
              "</th><th>mesh</th><th class=\"number\">ops</th><th>judged</th></tr>\n";
  for (const Report &report : page.reports) {
    page.out << "<tr><td>" << html(report.input) << "</td><td>"
             << (report.program ? html(meshes_of(report)) : "") << "</td><td class=\"number\">"
             << (report.program ? std::to_string(report.result->stats.ops) : "") << "</td><td>";
    if (report.program) {
      std::string why = nothing_judged(report);
      page.out << html(why.empty() ? counts_line(totals_of(report)) : why);
    }
    for (const ir::InputError &error : report.input_errors) {
      auto [line, col] = line_of(report, error);
      page.out << fmt::format("<div><span class=\"badge error\">{}</span>{}:{}: {}</div>",
                              error.name, line, col, html(error.message));
    }
    page.out << "</td></tr>\n";
  }
  page.out << "</table></div>\n";
}

// --- communication -------------------------------------------------------------------------------

void print_traffic(Page &page, std::string_view title, const TrafficRows &rows, TrafficBy by) {
  constexpr size_t kMost = 40;
  int64_t most = rows.empty() ? 0 : rows.front().second.bytes;
  page.out << "<h2>" << title << "</h2>\n<div class=\"panel\"><table><tr>";
  for (std::string_view column : traffic_columns(by))
    page.out << "<th>" << column << "</th>";
  page.out << "<th class=\"number\">calls</th><th class=\"number\">sent by a rank</th>"
              "<th></th></tr>\n";
  for (const auto &[key, traffic] : llvm::ArrayRef(rows).take_front(kMost)) {
    page.out << "<tr>";
    for (const std::string &part : key)
      page.out << "<td>" << (part.empty() ? "—" : html(part)) << "</td>";
    page.out << fmt::format(
        "<td class=\"number\">{}</td><td class=\"number\">{}{}</td><td class=\"share\">"
        "<div class=\"bar\"><i style=\"width:{:.1f}%\"></i></div></td></tr>\n",
        traffic.calls, print_bytes(traffic.bytes),
        traffic.unknown ? fmt::format(" and {} of unknown size", traffic.unknown) : "",
        most ? 100.0 * double(traffic.bytes) / double(most) : 0.0);
  }
  if (rows.size() > kMost)
    page.out << fmt::format("<tr><td colspan=\"6\" class=\"more\">and {} more</td></tr>\n",
                            rows.size() - kMost);
  page.out << "</table></div>\n";
}

// Nothing for a program that names no modules.
void print_modules(Page &page, const Report &report, llvm::ArrayRef<CommCall> messages,
                   const std::string &of) {
  ModuleGraph graph = module_graph(*report.program, messages);
  if (!graph.nodes.empty())
    page.out << "<h2>Modules" << of
             << " <small>of the forward, and what is communicated on the way</small></h2>\n"
                "<div class=\"panel\">"
             << module_picture(graph, html) << "</div>\n";
}

void print_communication(Page &page) {
  page.out << "<div id=\"communication\"></div>";
  bool any = false;
  for (const Report &report : page.reports) {
    if (!report.program)
      continue;
    std::vector<CommCall> messages = comm_calls(*report.program, *report.result);
    std::string of = page.reports.size() == 1 ? "" : " of " + html(report.input);
    print_modules(page, report, messages, of);
    if (messages.empty())
      continue;
    any = true;
    print_traffic(
        page, fmt::format("Communication{} <small>ring algorithms; a body counts once</small>", of),
        add_up(*report.program, messages, TrafficBy::Axis), TrafficBy::Axis);
    print_traffic(page, fmt::format("Communication{} by part of the model", of),
                  add_up(*report.program, messages, TrafficBy::Scope), TrafficBy::Scope);
  }
  if (!any)
    page.out << "<h2>Communication</h2><div class=\"panel empty\">No collective.</div>\n";
}

// --- the program ---------------------------------------------------------------------------------

void print_program(Page &page) {
  page.out << "<section id=\"program\"><h2>Program</h2>\n<div class=\"tools\"><select id=\"input\" "
              "aria-label=\"input\">";
  for (size_t input = 0; input < page.reports.size(); ++input)
    page.out << "<option value=\"" << input << "\">" << html(page.reports[input].input)
             << "</option>";
  page.out << "</select><span id=\"count\"></span><label><input id=\"gradients\" "
              "type=\"checkbox\"> types of gradients</label><span>types on hover · a click on a "
              "value leads "
              "to where it is made · <kbd>↑</kbd> <kbd>↓</kbd></span></div>\n"
              "<div class=\"panel\"><div id=\"listing\" tabindex=\"0\" role=\"listbox\" "
              "aria-label=\"program\"></div><div id=\"about\"></div></div>\n</section>\n"
              "<script type=\"application/json\" id=\"data\">[";
  for (size_t input = 0; input < page.reports.size(); ++input)
    page.out << (input ? "," : "") << page_data(page.reports[input], input);
  page.out << "]</script>\n";
}

std::string title_of(const Page &page) {
  return page.reports.size() == 1 ? page.reports.front().input
                                  : plural(page.reports.size(), "input");
}

} // namespace

void render_html(llvm::ArrayRef<Report> reports, SourceCache &sources, const RenderOptions &options,
                 llvm::raw_ostream &out) {
  Page page{.reports = reports, .sources = sources, .options = options, .out = out};
  page.totals = totals_of(reports);
  out << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
         "<link rel=\"icon\" href=\"data:,\">\n<title>spmdlint: "
      << html(title_of(page)) << "</title>\n<style>\n"
      << kPageStyle
      << "</style></head>\n<body>\n<a class=\"skip\" href=\"#findings\">to the findings</a>\n"
         "<header><div><strong>spmdlint</strong><nav><a href=\"#findings\">Findings</a>"
         "<a href=\"#coverage\">Judged</a><a href=\"#communication\">Communication</a>"
         "<a href=\"#program\">Program</a></nav><input id=\"search\" type=\"search\" "
         "placeholder=\"Search ( / )\" aria-label=\"search findings and program\">"
         "<button id=\"theme\" aria-label=\"light or dark\">◐</button></div></header>\n<main>\n";
  print_summary(page);
  print_findings(page);
  print_coverage(page);
  print_communication(page);
  print_program(page);
  out << "<footer>spmdlint " << kVersion << "</footer>\n</main>\n<script>\n"
      << kPageScript << "</script>\n</body></html>\n";
}

} // namespace spmd::checker
