// Transitions, and ops whose dimensions follow from attributes.
#include "tests/soundness/generator.h"

#include "rules/transitions/transition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace spmd::soundness {

bool Generator::transition() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Seen seen = see(*id);
  if (!local_ && region_.empty() && random_.chance(20))
    return random_.chance(30) ? swap(seen) : redistribution(seen);
  unsigned a = random_.below(axes_.size());
  Want::Axis at = seen.want.axes[a];
  static const std::map<char, ir::Kind> kKinds = {
      {'R', ir::Kind::Replicate}, {'D', ir::Kind::Reduced}, {'I', ir::Kind::Invariant},
      {'V', ir::Kind::Varying},   {'S', ir::Kind::Varying}, {'P', ir::Kind::Partial}};
  llvm::SmallVector<const rules::Transition *, 12> rows;
  for (const rules::Transition &row : rules::transitions())
    if (row.src == kKinds.at(at.kind) && (!row.expert || random_.chance(25)))
      rows.push_back(&row);
  if (rows.empty())
    return false;
  const rules::Transition &row = *random_.of(rows);
  size_t rank = seen.want.local.size();
  Statement statement;
  statement.op = row.name();
  statement.operands = {Operand::value(*id)};
  bool stacks = local_ || !region_.empty();
  auto word = [&](ir::Kind kind, bool from) -> std::string {
    if (kind != ir::Kind::Varying || row.layouts == rules::Layouts::Plain)
      return std::string(ir::info(kind).word);
    if (from && at.kind == 'S')
      return fmt::format("S({})", at.dim);
    if ((stacks && random_.chance(60)) || rank == 0)
      return "V";
    return fmt::format("S({})", random_.below(rank));
  };
  std::string axis = axes_[a];
  // All axes of one type, at times: in either order, or by the name of a flattened one.
  llvm::SmallVector<std::string, 3> same_type;
  for (unsigned b = 0; b < axes_.size(); ++b)
    if (seen.want.axes[b].kind == at.kind && seen.want.axes[b].dim == at.dim)
      same_type.push_back(axes_[b]);
  if (same_type.size() > 1 && random_.chance(35)) {
    if (random_.chance(30))
      std::swap(same_type[0], same_type[1]);
    axis = fmt::format("({})", fmt::join(same_type, ", "));
    if (!flattened_.empty() && random_.chance(40))
      axis = flattened_[0];
  }
  statement.set("axis", axis);
  std::string src = word(row.src, true), dst = word(row.dst, false);
  bool shards = src[0] == 'S' || dst[0] == 'S';
  if (src == "V" && dst[0] == 'S' && row.op == rules::TransitionOp::AllToAll)
    dst = "V";
  if (src[0] == 'S' && dst == "V")
    dst = rank ? fmt::format("S({})", random_.below(rank)) : "V";
  statement.set("src", src);
  statement.set("dst", dst);
  if (!shards && rank && row.layouts == rules::Layouts::StackOrShard && random_.chance(50)) {
    if (row.op == rules::TransitionOp::AllToAll) {
      statement.set("split_dim", std::to_string(random_.below(rank)));
      statement.set("concat_dim", std::to_string(random_.below(rank)));
    } else {
      statement.set("dim", std::to_string(random_.below(rank)));
    }
  }
  if (row.src == ir::Kind::Partial && row.op != rules::TransitionOp::Reduce && random_.chance(20))
    statement.set("op", "avg");
  if (row.op == rules::TransitionOp::Broadcast || row.op == rules::TransitionOp::Reduce)
    statement.set("root", std::to_string(random_.below(static_cast<size_t>(sizes_[a]))));
  if (row.op == rules::TransitionOp::CollectivePermute) {
    std::string perm;
    for (int64_t i = 0; i < sizes_[a]; ++i)
      perm += fmt::format("{}[{}, {}]", i ? ", " : "", i, (i + 1) % sizes_[a]);
    statement.set("perm", "[" + perm + "]");
  }
  statement.results = {draft_.fresh()};
  return keep(std::move(statement));
}

// Ops whose dimensions follow from attributes. Sizes are those of the first rank.
bool Generator::view() {
  std::optional<unsigned> id = pick();
  if (!id)
    return false;
  Seen seen = see(*id);
  size_t rank = seen.want.local.size();
  Statement statement;
  statement.operands = {Operand::value(*id)};
  statement.results = {draft_.fresh()};
  unsigned kind = random_.below(14);
  if (rank == 0)
    kind = 1;
  size_t d = rank ? random_.below(rank) : 0;
  switch (kind) {
  case 0:
  case 1:
  case 2:
  case 3:
  case 4:
  case 5:
    if (!reshape(kind, seen.want.local, d, statement))
      return false;
    break;
  case 6:
  case 7: {
    unsigned other = provide(seen.want);
    if (other == ~0u)
      return false;
    statement.op = kind == 6 ? "cat" : "stack";
    statement.operands = {Operand::list({*id, other})};
    statement.set("dim", std::to_string(d));
    break;
  }
  case 8:
  case 9:
  case 10:
    if (!cut(kind, seen.want.local[d], d, statement))
      return false;
    break;
  case 11:
    statement.op = random_.chance(50) ? "flatten" : "squeeze";
    if (statement.op == "squeeze")
      statement.set("dim", std::to_string(d));
    break;
  case 12:
    statement.op = "constant_pad";
    statement.set("pad", "[1, 0]");
    break;
  case 13:
    if (!einsum(seen, statement))
      return false;
    break;
  }
  return keep(std::move(statement));
}

// Dimensions merge, are made, are cut in two, change places or are stretched.
bool Generator::reshape(unsigned kind, const Dims &dims, size_t d, Statement &statement) {
  size_t rank = dims.size();
  switch (kind) {
  case 0: { // two neighbours become one
    if (rank < 2)
      return false;
    Dims merged = dims;
    size_t at = random_.below(rank - 1);
    merged[at] *= merged[at + 1];
    merged.erase(merged.begin() + static_cast<ptrdiff_t>(at) + 1);
    statement.op = random_.chance(50) ? "reshape" : "view";
    statement.set("shape", list_of(merged));
    break;
  }
  case 1:
    statement.op = "unsqueeze";
    statement.set("dim", std::to_string(random_.below(rank + 1)));
    break;
  case 2: { // one becomes two
    Dims split = dims;
    llvm::SmallVector<int64_t, 4> parts;
    for (int64_t p = 1; p <= dims[d]; ++p)
      if (dims[d] % p == 0)
        parts.push_back(p);
    if (parts.empty())
      return false;
    int64_t inner = random_.of(parts);
    split[d] = dims[d] / inner;
    split.insert(split.begin() + static_cast<ptrdiff_t>(d) + 1, inner);
    statement.op = "reshape";
    statement.set("shape", list_of(split));
    break;
  }
  case 3: {
    llvm::SmallVector<int64_t, 4> order;
    for (size_t i = 0; i < rank; ++i)
      order.insert(order.begin() + static_cast<ptrdiff_t>(random_.below(i + 1)),
                   static_cast<int64_t>(i));
    statement.op = "permute_dims";
    statement.set("dims", list_of(order));
    break;
  }
  case 4:
    statement.op = "transpose";
    statement.set("dim0", std::to_string(d));
    statement.set("dim1", std::to_string(random_.below(rank)));
    break;
  case 5: {
    Dims wide = dims;
    for (int64_t &extent : wide)
      extent = extent == 1 ? random_.of(extents_) : extent;
    if (random_.chance(50) && rank < 3)
      wide.insert(wide.begin(), random_.of(extents_));
    statement.op = "expand";
    statement.set("size", list_of(wide));
    break;
  }
  }
  return true;
}

// Parts of dimension d.
bool Generator::cut(unsigned kind, int64_t extent, size_t d, Statement &statement) {
  statement.op = kind == 8 ? "split" : kind == 9 ? "slice" : "select";
  statement.set("dim", std::to_string(d));
  if (kind == 8) {
    if (extent < 2)
      return false;
    int64_t first = 1 + random_.below(static_cast<size_t>(extent - 1));
    statement.set("sizes", list_of({first, extent - first}));
    statement.results.push_back(draft_.fresh());
  } else if (kind == 9) {
    statement.set("start", "0");
    statement.set("end", std::to_string(1 + random_.below(static_cast<size_t>(extent) + 1)));
  } else {
    statement.set("index", "0");
  }
  return true;
}

bool Generator::einsum(const Seen &seen, Statement &statement) {
  if (seen.want.local.size() != 2)
    return false;
  static constexpr const char *kEquations[] = {"\"ij,kj->ik\"", "\"ij,ij->j\"", "\"ij,ij->\"",
                                               "\"ij,jk->ki\"", "\"ij,jk->kij\""};
  const char *equation = random_.of(kEquations);
  bool transposed = equation[4] == 'j';
  Want want = transposed           ? beside(seen, {1, -1}, {0, random_.of(extents_)}, false)
              : equation[4] == 'k' ? beside(seen, {-1, 1}, {random_.of(extents_), 0}, false)
                                   : beside(seen, {0, 1}, {0, 0}, false);
  unsigned other = provide(want);
  if (other == ~0u)
    return false;
  statement.op = "einsum";
  statement.operands = {Operand::list({seen.id, other})};
  statement.set("equation", equation);
  return true;
}

} // namespace spmd::soundness
