// Modules stand below each other in the order in which they run. What goes to the next one is a
// line; what skips some, an arc to the right; what comes back, as from one layer to the next, an
// arc to the left.
#include "checker/render/module_picture.h"

#include "checker/render/render.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>

namespace spmd::checker {
namespace {

constexpr int kWidth = 280, kHeight = 34, kGap = 40, kLane = 26, kLabel = 205, kInside = 330;

using Html = std::string (*)(llvm::StringRef text);

std::string words_of(const std::string &what, const Traffic &traffic) {
  std::string text = what;
  if (traffic.calls > 1)
    text += fmt::format(" × {}", traffic.calls);
  if (traffic.unknown < traffic.calls)
    text += ", " + print_bytes(traffic.bytes);
  return text + (traffic.unknown ? ", size not known in part" : "");
}

std::string words_of(const Moved &moved) {
  std::string text;
  for (const auto &[what, traffic] : moved)
    text += (text.empty() ? "" : "; ") + words_of(what, traffic);
  return text;
}

// The one with the most bytes, and how many more there are; the table has them all.
std::string short_words_of(const Moved &moved) {
  auto most = std::max_element(moved.begin(), moved.end(), [](const auto &a, const auto &b) {
    return a.second.bytes < b.second.bytes;
  });
  if (most == moved.end())
    return "";
  std::string text = words_of(most->first, most->second);
  return moved.size() == 1 ? text : text + fmt::format(", and {} more", moved.size() - 1);
}

std::string name_of(const ModuleGraph::Node &node) {
  return node.name.empty() ? "outside of modules" : node.name;
}

std::string shortened(const std::string &text, size_t most) {
  return text.size() <= most ? text : "…" + text.substr(text.size() - most + 1);
}

class Picture {
public:
  Picture(const ModuleGraph &graph, Html html) : graph_(graph), html_(html) {}
  std::string draw();

private:
  void place();
  void edge(const ModuleGraph::Edge &edge);
  void node(uint32_t index);

  struct Span {
    uint32_t from, to; // the upper and the lower end
  };
  // The first lane in which nothing overlaps.
  static int take_lane(std::vector<std::vector<Span>> &lanes, Span span);
  int centre(uint32_t index) const { return tops_[index] + kHeight / 2; }

  const ModuleGraph &graph_;
  Html html_;
  std::vector<int> tops_;
  std::vector<int> lane_; // per edge
  std::vector<std::vector<Span>> right_, left_;
  int x_ = 0, labels_ = 0, height_ = 0;
  std::string lines_, boxes_;
};

int Picture::take_lane(std::vector<std::vector<Span>> &lanes, Span span) {
  for (size_t i = 0;; ++i) {
    if (i == lanes.size())
      lanes.emplace_back();
    bool free = llvm::none_of(
        lanes[i], [&](Span other) { return other.from < span.to && span.from < other.to; });
    if (!free)
      continue;
    lanes[i].push_back(span);
    return static_cast<int>(i) + 1;
  }
}

void Picture::place() {
  std::vector<const ModuleGraph::Edge *> order;
  for (const ModuleGraph::Edge &edge : graph_.edges)
    order.push_back(&edge);
  // Short arcs lie inside of long ones.
  llvm::stable_sort(order, [](const auto *a, const auto *b) {
    auto length = [](const auto *edge) {
      return std::max(edge->from, edge->to) - std::min(edge->from, edge->to);
    };
    return length(a) < length(b);
  });
  lane_.assign(graph_.edges.size(), 0);
  for (const ModuleGraph::Edge *edge : order)
    if (edge->to != edge->from + 1)
      lane_[static_cast<size_t>(edge - graph_.edges.data())] =
          take_lane(edge->to > edge->from ? right_ : left_,
                    {std::min(edge->from, edge->to), std::max(edge->from, edge->to)});
  bool says_left = false, says_right = false;
  for (size_t i = 0; i < graph_.edges.size(); ++i)
    if (lane_[i] && !graph_.edges[i].moved.empty())
      (graph_.edges[i].to > graph_.edges[i].from ? says_right : says_left) = true;
  x_ = 20 + kLane * static_cast<int>(left_.size()) + (says_left ? kLabel : 0);
  labels_ = x_ + kWidth + 16 + kLane * static_cast<int>(right_.size()) + (says_right ? kLabel : 0);
  int y = 12;
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
    tops_.push_back(y);
    y += kHeight + kGap;
  }
  height_ = y - kGap + 12;
}

void Picture::edge(const ModuleGraph::Edge &edge) {
  int lane = lane_[static_cast<size_t>(&edge - graph_.edges.data())];
  std::string text = words_of(edge.moved);
  std::string_view form = edge.moved.empty() ? "plain" : "sends";
  std::string title =
      html_(fmt::format("{} to {}{}{}", name_of(graph_.nodes[edge.from]),
                        name_of(graph_.nodes[edge.to]), text.empty() ? "" : ": ", text));
  std::string path;
  int label_x = x_ + kWidth / 2 + 10, label_y = 0;
  if (lane == 0) {
    int x = x_ + kWidth / 2;
    path = fmt::format("M{} {} V{}", x, tops_[edge.from] + kHeight, tops_[edge.to] - 2);
    label_y = tops_[edge.from] + kHeight + kGap / 2 + 4;
  } else {
    bool down = edge.to > edge.from;
    int side = down ? x_ + kWidth : x_, out = down ? side + kLane * lane : side - kLane * lane;
    int bend = down ? 8 : -8;
    int from = centre(edge.from) + (down ? 7 : -7), to = centre(edge.to) + (down ? -7 : 7);
    int turn = to > from ? 8 : -8;
    path = fmt::format("M{} {} H{} Q{} {} {} {} V{} Q{} {} {} {} H{}", side, from, out - bend, out,
                       from, out, from + turn, to - turn, out, to, out - bend, to,
                       side + (down ? 2 : -2));
    label_x = down ? out + 6 : out - 6;
    label_y = (from + to) / 2 + 4;
  }
  lines_ +=
      fmt::format("<g class=\"{}\"><title>{}</title><path d=\"{}\" marker-end=\"url(#arrow)\"/>",
                  form, title, path);
  if (!text.empty())
    lines_ +=
        fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>", label_x, label_y,
                    label_x < x_ ? " text-anchor=\"end\"" : "", html_(short_words_of(edge.moved)));
  lines_ += "</g>\n";
}

void Picture::node(uint32_t index) {
  const ModuleGraph::Node &node = graph_.nodes[index];
  boxes_ += fmt::format(
      "<g class=\"node\"><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
      "rx=\"8\"/>"
      "<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" class=\"ops\">{} op{}</text>",
      html_(name_of(node)), x_, tops_[index], kWidth, kHeight, x_ + 12, centre(index) + 5,
      html_(shortened(name_of(node), 28)), x_ + kWidth - 10, centre(index) + 5, node.ops,
      node.ops == 1 ? "" : "s");
  int line = centre(index) + 4 - 7 * (static_cast<int>(node.inside.size()) - 1);
  for (const auto &[phase, moved] : node.inside) {
    boxes_ += fmt::format("<text x=\"{}\" y=\"{}\" class=\"inside\">{}</text>", labels_, line,
                          html_(phase + ": " + short_words_of(moved)));
    line += 14;
  }
  boxes_ += "</g>\n";
}

std::string Picture::draw() {
  place();
  for (const ModuleGraph::Edge &each : graph_.edges)
    edge(each);
  for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
    node(i);
  return fmt::format(
      "<svg class=\"modules\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" "
      "aria-label=\"modules and what is communicated between them\"><defs><marker id=\"arrow\" "
      "viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerUnits=\"userSpaceOnUse\" "
      "markerWidth=\"9\" markerHeight=\"9\" "
      "orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\"/></marker></defs>\n{2}{3}</svg>\n",
      labels_ + kInside, height_, lines_, boxes_);
}

void row(std::string &out, Html html, const std::string &from, const std::string &to,
         const Moved &moved) {
  for (const auto &[what, traffic] : moved)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"number\">{}</td><td "
                       "class=\"number\">{}</td></tr>\n",
                       html(from), html(to), html(what), traffic.calls,
                       traffic.unknown == traffic.calls ? "not known" : print_bytes(traffic.bytes));
}

} // namespace

std::string module_picture(const ModuleGraph &graph, Html html) {
  std::string rows;
  for (const ModuleGraph::Edge &edge : graph.edges)
    row(rows, html, name_of(graph.nodes[edge.from]), name_of(graph.nodes[edge.to]), edge.moved);
  for (const ModuleGraph::Node &node : graph.nodes)
    for (const auto &[phase, moved] : node.inside)
      row(rows, html, name_of(node), phase, moved);
  std::string text = "<div class=\"picture\">" + Picture(graph, html).draw() + "</div>\n";
  if (!rows.empty())
    text += "<details class=\"more\"><summary>the same as a table</summary><table><tr><th>from</th>"
            "<th>to, or when</th><th>collective</th><th class=\"number\">calls</th><th "
            "class=\"number\">sent by a rank</th></tr>\n" +
            rows + "</table></details>\n";
  return text;
}

} // namespace spmd::checker
