// Every transition in every form, run on two to four ranks: what the ranks hold afterwards means
// what the row says that it means, computed here from lists of tensors alone.
#include "ir/support/arrays.h"
#include "tests/unit/run_program.h"

#include "rules/transitions/transition.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::runtime {
namespace {

using ir::Kind;
using Numbers = std::vector<double>;

struct Piece {
  Dims dims;
  Numbers cells;
  friend bool operator==(const Piece &, const Piece &) = default;
};
using List = std::vector<Piece>;

int64_t outer(const Piece &piece, size_t dim) {
  return count(ir::as_array(piece.dims).take_front(dim));
}

// Along a dimension that is there, in order.
Piece concat(const List &list, size_t dim) {
  Piece made{list[0].dims, {}};
  made.dims[dim] = 0;
  for (const Piece &each : list)
    made.dims[dim] += each.dims[dim];
  for (int64_t o = 0; o < outer(list[0], dim); ++o)
    for (const Piece &each : list) {
      int64_t run = static_cast<int64_t>(each.cells.size()) / outer(each, dim);
      made.cells.insert(made.cells.end(), each.cells.begin() + o * run,
                        each.cells.begin() + (o + 1) * run);
    }
  return made;
}

Piece stack(List list, size_t dim) {
  for (Piece &each : list)
    each.dims.insert(each.dims.begin() + static_cast<ptrdiff_t>(dim), 1);
  return concat(list, dim);
}

List chunk(const Piece &whole, size_t n, size_t dim) {
  List list(n);
  int64_t run =
      static_cast<int64_t>(whole.cells.size()) / outer(whole, dim) / static_cast<int64_t>(n);
  for (size_t k = 0; k < n; ++k) {
    list[k].dims = whole.dims;
    list[k].dims[dim] /= static_cast<int64_t>(n);
    for (int64_t o = 0; o < outer(whole, dim); ++o) {
      auto first =
          whole.cells.begin() + (o * static_cast<int64_t>(n) + static_cast<int64_t>(k)) * run;
      list[k].cells.insert(list[k].cells.end(), first, first + run);
    }
  }
  return list;
}

List unbind(const Piece &whole, size_t dim) {
  List list = chunk(whole, static_cast<size_t>(whole.dims[dim]), dim);
  for (Piece &each : list)
    each.dims.erase(each.dims.begin() + static_cast<ptrdiff_t>(dim));
  return list;
}

Piece sum(const List &list) {
  Piece made = list[0];
  for (size_t r = 1; r < list.size(); ++r)
    for (size_t i = 0; i < made.cells.size(); ++i)
      made.cells[i] += list[r].cells[i];
  return made;
}

Piece times(Piece piece, double factor) {
  for (double &cell : piece.cells)
    cell *= factor;
  return piece;
}

Piece zeros(Piece piece) { return times(std::move(piece), 0); }

// How a call is written, and what it does to dimensions.
struct Form {
  std::string attrs;
  bool shard = false;
  size_t dim = 0, join = 0, split = 0;
};

// What the ranks mean together: a list, or one tensor alone.
List meaning(Kind kind, const List &ranks) {
  switch (ir::info(kind).denotes) {
  case ir::Denotation::Same:
    for (const Piece &each : ranks)
      REQUIRE(each == ranks[0]);
    return {ranks[0]};
  case ir::Denotation::Sum:
    return {sum(ranks)};
  case ir::Denotation::List:
    break;
  }
  return ranks;
}

// From what the operand means to what the result means.
List specified(const rules::Transition &row, const Form &form, size_t n, const List &x) {
  std::string_view name = row.name();
  Kind src = row.src, dst = row.dst;
  if (name == "all_gather") {
    Piece joined = form.shard ? concat(x, form.dim) : stack(x, form.dim);
    return List(dst == Kind::Varying ? n : 1, joined);
  }
  bool cuts = name == "reduce_scatter" || (name == "convert" && dst == Kind::Varying);
  if (cuts)
    return form.shard ? chunk(x[0], n, form.dim) : unbind(x[0], form.dim);
  if (name == "convert" && src == Kind::Varying)
    return {form.shard ? concat(x, form.dim) : stack(x, form.dim)};
  if (name == "all_to_all") {
    if (form.shard)
      return chunk(concat(x, form.join), n, form.split);
    List moved(n);
    for (size_t k = 0; k < n; ++k) {
      List received;
      for (const Piece &each : x)
        received.push_back(unbind(each, form.split)[k]);
      moved[k] = stack(received, form.join);
    }
    return moved;
  }
  if (name == "reinterpret" && dst == Kind::Varying)
    return List(n, x[0]);
  if (name == "reinterpret" && dst == Kind::Partial)
    return {src == Kind::Varying ? sum(x) : times(x[0], static_cast<double>(n))};
  if (name == "broadcast")
    return {x[n - 1]};
  if (name == "reduce") {
    List list(n, zeros(x[0]));
    list[n - 1] = x[0];
    return list;
  }
  if (name == "collective_permute") { // 0 to n - 1, n - 1 to 0, and nothing else
    List list(n, zeros(x[0]));
    list[n - 1] = x[0];
    list[0] = x[n - 1];
    return list;
  }
  return x;
}

std::string kind_word(Kind kind) { return std::string(ir::info(kind).word); }

// The dimensions that forms stack, cut or join along.
std::vector<Form> forms_of(const rules::Transition &row, size_t n) {
  std::string src = kind_word(row.src), dst = kind_word(row.dst);
  auto ends = [](const std::string &a, const std::string &b) {
    return fmt::format("src = {}, dst = {}", a, b);
  };
  std::vector<Form> forms;
  if (row.collective == rules::Collective::AllToAll) {
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 3; ++j) {
        forms.push_back({fmt::format("{}, split_dim = {}, concat_dim = {}", ends("V", "V"), j, i),
                         false, 0, i, j});
        if (i != j)
          forms.push_back({ends(fmt::format("S({})", i), fmt::format("S({})", j)), true, 0, i, j});
      }
    return forms;
  }
  if (row.layouts == rules::Layouts::Plain) {
    std::string more;
    if (row.name() == "broadcast" || row.name() == "reduce")
      more = fmt::format(", root = {}", n - 1);
    if (row.name() == "collective_permute")
      more = fmt::format(", perm = [[0, {0}], [{0}, 0]]", n - 1);
    return {{ends(src, dst) + more}};
  }
  for (size_t d = 0; d < 3; ++d) {
    std::string shard = fmt::format("S({})", d);
    bool joins = row.src == Kind::Varying;
    forms.push_back({fmt::format("{}, dim = {}", ends(src, dst), d), false, d});
    if (!row.composed) // shards are not gathered into a list
      forms.push_back({joins ? ends(shard, dst) : ends(src, shard), true, d});
  }
  return forms;
}

List pieces(const std::vector<Tensor> &tensors) {
  List list;
  for (const Tensor &tensor : tensors)
    list.push_back({tensor.dims, tensor.of<double>()});
  return list;
}

void check_row(const rules::Transition &row, const Form &form, size_t n) {
  // All extents are multiples of the ranks, and no two are equal.
  std::string text =
      fmt::format("trace {{ mode = local }}\nmesh m {{ tp = {} }}\n%x = input f64[{}, {}, {}] {}\n"
                  "%y = {} %x {{ axis = tp, {}, expert = true }}\noutput %y\n",
                  n, n, row.name() == "all_to_all" || !form.shard ? n : 2 * n, n,
                  kind_word(row.src), row.name(), form.attrs);
  INFO(text);
  std::unique_ptr<Planned> run = planned(text);
  REQUIRE(run->problem == "");
  CpuOptions options;
  options.check_memory = true;
  CpuRun cpu(*run, options);
  REQUIRE(cpu.problem() == "");
  cpu.write(n);
  std::vector<Tensor> before, after;
  for (RankId rank = 0; rank < n; ++rank)
    before.push_back(cpu.read(run->plan->params[0], rank));
  REQUIRE(cpu.run() == "");
  for (RankId rank = 0; rank < n; ++rank)
    after.push_back(cpu.output(0, rank));
  REQUIRE(meaning(row.dst, pieces(after)) ==
          specified(row, form, n, meaning(row.src, pieces(before))));
}

} // namespace

TEST_CASE("cpu: every transition means what its row says") {
  size_t runs = 0;
  for (size_t n = 2; n <= 4; ++n)
    for (const rules::Transition &row : rules::transitions())
      for (const Form &form : forms_of(row, n)) {
        check_row(row, form, n);
        ++runs;
      }
  REQUIRE(runs > 200);
}

// Three addends per rank and element; what each combiner makes of them.
TEST_CASE("cpu: combiners") {
  const std::map<std::string, std::function<double(double, double)>> combiners = {
      {"sum", [](double a, double b) { return a + b; }},
      {"max", [](double a, double b) { return std::max(a, b); }},
      {"min", [](double a, double b) { return std::min(a, b); }},
      {"prod", [](double a, double b) { return a * b; }},
      {"and", [](double a, double b) { return double(int64_t(a) & int64_t(b)); }},
      {"or", [](double a, double b) { return double(int64_t(a) | int64_t(b)); }},
      {"xor", [](double a, double b) { return double(int64_t(a) ^ int64_t(b)); }},
  };
  for (const auto &[word, combine] : combiners)
    for (bool scatters : {false, true}) {
      std::string text =
          fmt::format("trace {{ mode = local }}\nmesh m {{ tp = 3 }}\n%x = input i64[6, 2] P({0})\n"
                      "%y = {1} %x {{ axis = tp, op = {0}, src = P({0}), dst = {2} }}\noutput %y\n",
                      word, scatters ? "reduce_scatter" : "all_reduce", scatters ? "S(0)" : "R");
      INFO(text);
      std::unique_ptr<Planned> run = planned(text);
      REQUIRE(run->problem == "");
      CpuRun cpu(*run);
      std::vector<Tensor> operands;
      for (RankId rank = 0; rank < 3; ++rank) {
        Tensor tensor = Tensor::make(ir::DType::I64, {6, 2}, Domain::Declared);
        for (size_t i = 0; i < 12; ++i)
          tensor.of<double>()[i] = static_cast<double>(ir::mix(rank, i) % 8);
        cpu.write(run->plan->params[0], rank, tensor);
        operands.push_back(std::move(tensor));
      }
      Numbers want = operands[0].of<double>();
      for (size_t i = 0; i < want.size(); ++i)
        want[i] =
            combine(combine(want[i], operands[1].of<double>()[i]), operands[2].of<double>()[i]);
      REQUIRE(cpu.run() == "");
      for (RankId rank = 0; rank < 3; ++rank) {
        Numbers own = want;
        if (scatters)
          own.assign(want.begin() + rank * 4, want.begin() + rank * 4 + 4);
        REQUIRE(cpu.output(0, rank).of<double>() == own);
      }
    }
}

TEST_CASE("cpu: sums are rounded once, to the dtype of the wire") {
  std::unique_ptr<Planned> run = planned(R"(trace { mode = local }
mesh m { tp = 4 }
%x = input bf16[1] P
%s = all_reduce %x { axis = tp, src = P, dst = R }
%a = all_reduce %x { axis = tp, src = P, dst = R, op = avg }
output %s
output %a: bf16[1] R scale 1/tp
)");
  REQUIRE(run->problem == "");
  CpuRun cpu(*run);
  for (RankId rank = 0; rank < 4; ++rank) {
    Tensor tensor = Tensor::make(ir::DType::BF16, {1}, Domain::Declared);
    tensor.of<double>()[0] =
        rank == 0 ? 256 : 0.75; // 256.75, 257.5 and 258.25 each round to 8 bits
    cpu.write(run->plan->params[0], rank, tensor);
  }
  REQUIRE(cpu.run() == "");
  REQUIRE(cpu.output(0, 2).of<double>()[0] == 258);
  REQUIRE(cpu.output(1, 2).of<double>()[0] == 64.5);
}

} // namespace spmd::runtime
