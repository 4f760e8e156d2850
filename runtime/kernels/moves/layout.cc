// Views and other rows that move elements. Sizes come from the tensors at hand, never from
// attributes, which speak of one rank.
#include "runtime/kernels/composed/compositions.h"
#include "runtime/kernels/moves/moves.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Expected;

Moves one(Box box, unsigned arg) {
  Moves moves;
  moves.list.push_back({arg, 0, std::move(box)});
  return moves;
}

// Row-major order stays.
Expected<Moves> reshape(const MoveSite &at) {
  const Dims &from = at.dims(*at.arg("a")), &to = *at.results[0];
  if (rules::any_attr(at.context.app, {"dimensions"}) && !at.context.app.op.alias)
    return cannot_run(at.context, "its order of dimensions is not row-major");
  if (count(from) != count(to))
    return wrong_number(at.context, count(from), count(to));
  return one(box_of(to), *at.arg("a"));
}

// Per dimension of the result, that of the operand: read off the factors, which are one to one.
Expected<Moves> permute(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const rules::FactorMap &map = at.context.map;
  if (arg >= map.args.size() || !map.args[arg] || map.results.empty() || !map.results[0])
    return cannot_run(at.context, "its attributes do not say the order of dimensions");
  Strides from = strides_of(at.dims(arg));
  Box box = box_of(*at.results[0]);
  for (size_t d = 0; d < box.extents.size(); ++d)
    for (size_t e = 0; e < from.size(); ++e)
      if ((*map.args[arg])[e] == (*map.results[0])[d])
        box.from_strides[d] = from[e];
  return one(std::move(box), arg);
}
bool conjugates(const KernelContext &context) { return context.variant() == Variant::Adjoint; }
// Where nothing but positions changes.
Expected<Moves> permute_alone(const MoveSite &at) {
  if (conjugates(at.context))
    return cannot_run(at.context, "it may conjugate, too");
  return permute(at);
}
template <class T> llvm::Error permute_dims(const Call<T> &call) {
  llvm::Error error = carry_out(call, permute);
  if constexpr (std::is_same_v<T, Complex>) {
    if (!error && conjugates(call.context))
      for (int64_t i = 0; i < call.results[0].size(); ++i)
        call.results[0][i] = std::conj(call.results[0][i]);
  }
  return error;
}

// Which dimension of the result each of the operand is.
Expected<llvm::SmallVector<unsigned, 5>> expanded_dims(const MoveSite &at, unsigned arg) {
  const Dims &from = at.dims(arg), &to = *at.results[0];
  llvm::SmallVector<unsigned, 5> positions;
  if (std::optional<rules::Numbers> stated =
          rules::numbers_attr(at.context.app, {"broadcast_dimensions"})) {
    for (int64_t place : *stated)
      positions.push_back(static_cast<unsigned>(place));
  } else if (at.context.variant() == Variant::Grid) {
    auto member = static_cast<unsigned>(
        rules::number_attr(at.context.app, {"member"}).value_or(at.context.binding[0]->first));
    bool swapped = rules::word_attr(at.context.app, {"indexing"}) == "xy" && member < 2;
    positions.push_back(swapped ? 1 - member : member);
  } else {
    for (size_t d = 0; d < from.size() && from.size() <= to.size(); ++d)
      positions.push_back(static_cast<unsigned>(to.size() - from.size() + d));
  }
  bool fits = positions.size() == from.size();
  for (size_t d = 0; fits && d < from.size(); ++d)
    fits = positions[d] < to.size() && (from[d] == 1 || from[d] == to[positions[d]]);
  if (!fits)
    return cannot_run(at.context, "its operand does not stretch to the result");
  return positions;
}
Expected<Moves> expand(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  Expected<llvm::SmallVector<unsigned, 5>> positions = expanded_dims(at, arg);
  if (!positions)
    return positions.takeError();
  Box box = box_of(*at.results[0]);
  Strides from = strides_of(at.dims(arg));
  box.from_strides.assign(box.extents.size(), 0);
  for (size_t d = 0; d < from.size(); ++d)
    if (at.dims(arg)[d] != 1)
      box.from_strides[(*positions)[d]] = from[d];
  return one(std::move(box), arg);
}

// A dimension of the result is one of the operand, several times; as two loops.
Expected<Moves> repeat(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const Dims &from = at.dims(arg), &to = *at.results[0];
  Strides from_strides = strides_of(from), to_strides = strides_of(to);
  Box box;
  size_t added = to.size() - std::min(to.size(), from.size());
  for (size_t d = 0; d < to.size(); ++d) {
    int64_t extent = d < added ? 1 : from[d - added];
    if (extent == 0 ? to[d] != 0 : to[d] % extent != 0)
      return cannot_run(at.context, "the result is no multiple of its operand");
    box.extents.append({extent ? to[d] / extent : 0, extent});
    box.from_strides.append({0, d < added ? 0 : from_strides[d - added]});
    box.to_strides.append({to_strides[d] * extent, to_strides[d]});
  }
  return one(std::move(box), arg);
}

Expected<Moves> flip(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  auto rank = static_cast<unsigned>(at.dims(arg).size());
  const Variant variant = at.context.variant();
  llvm::SmallVector<unsigned, 4> dims = at.context.dims(rank);
  if (variant == Variant::Rows || variant == Variant::Columns)
    dims = {variant == Variant::Columns ? 1u : 0u};
  Box box = box_of(at.dims(arg));
  for (unsigned d : dims) {
    box.from += (box.extents[d] - 1) * box.from_strides[d];
    box.from_strides[d] = -box.from_strides[d];
  }
  return llvm::is_contained(box.extents, 0) ? Moves() : one(std::move(box), arg);
}

// `k` quarter turns from the first of two dimensions to the second.
Expected<Moves> rot90(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const Dims &from = at.dims(arg);
  rules::Numbers dims = rules::dim_numbers(at.context.app).value_or(rules::Numbers{0, 1});
  std::optional<unsigned> a, b;
  if (dims.size() == 2)
    a = rules::place_of(dims[0], from.size()), b = rules::place_of(dims[1], from.size());
  if (!a || !b)
    return cannot_run(at.context, "it turns two dimensions");
  int64_t turns = ((at.number({"k"}, 1).value_or(1) % 4) + 4) % 4;
  Box box = box_of(*at.results[0]);
  box.from_strides = strides_of(from);
  auto reverse = [&](unsigned d) { // of the operand, seen as it lies there
    box.from += (from[d] - 1) * strides_of(from)[d];
    return -strides_of(from)[d];
  };
  int64_t along_a = box.from_strides[*a], along_b = box.from_strides[*b];
  if (turns == 1)
    along_b = reverse(*b), std::swap(along_a, along_b);
  else if (turns == 2)
    along_a = reverse(*a), along_b = reverse(*b);
  else if (turns == 3)
    along_a = reverse(*a), std::swap(along_a, along_b);
  box.from_strides[*a] = along_a, box.from_strides[*b] = along_b;
  return llvm::is_contained(box.extents, 0) ? Moves() : one(std::move(box), arg);
}

// Rows of the last two dimensions, each up to or from its diagonal on.
Expected<Moves> triangle(const MoveSite &at, bool lower) {
  unsigned arg = *at.arg("a");
  const Dims &dims = at.dims(arg);
  if (dims.size() < 2)
    return cannot_run(at.context, "it takes a matrix");
  int64_t offset = at.number({"diagonal", "k"}, 1).value_or(0);
  int64_t rows = dims[dims.size() - 2], columns = dims.back();
  int64_t matrices = rows && columns ? count(dims) / (rows * columns) : 0;
  Moves moves;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t cut = std::clamp<int64_t>(i + offset + (lower ? 1 : 0), 0, columns);
    int64_t first = lower ? 0 : cut, last = lower ? cut : columns;
    int64_t place = i * columns + first;
    moves.list.push_back(
        {arg,
         0,
         {{matrices, last - first}, {rows * columns, 1}, {rows * columns, 1}, place, place}});
  }
  return moves;
}
Expected<Moves> tril(const MoveSite &at) { return triangle(at, true); }
Expected<Moves> triu(const MoveSite &at) { return triangle(at, false); }

// The diagonal of two dimensions of a dense array: its strides there, all others in order, and
// where it begins.
struct Diagonal {
  Dims extents; // of the others
  Strides strides;
  int64_t first = 0, step = 0;
};
Expected<Diagonal> diagonal_of(const MoveSite &at, llvm::ArrayRef<int64_t> dims, int64_t offset,
                               int64_t dim1, int64_t dim2) {
  std::optional<unsigned> a = rules::place_of(dim1, dims.size()),
                          b = rules::place_of(dim2, dims.size());
  if (!a || !b || a == b)
    return cannot_run(at.context, "a diagonal is one of two dimensions");
  Strides strides = strides_of(dims);
  Diagonal made;
  for (unsigned d = 0; d < dims.size(); ++d)
    if (d != *a && d != *b) {
      made.extents.push_back(dims[d]);
      made.strides.push_back(strides[d]);
    }
  made.first = offset >= 0 ? offset * strides[*b] : -offset * strides[*a];
  made.step = strides[*a] + strides[*b];
  return made;
}

// Between a dense array whose last dimension is the diagonal and one that has it in two dimensions.
Expected<Moves> along_diagonal(const MoveSite &at, unsigned arg, bool embeds,
                               llvm::ArrayRef<int64_t> square, llvm::ArrayRef<int64_t> line,
                               int64_t dim1, int64_t dim2) {
  int64_t offset = at.number({"offset", "diagonal", "k"}, 1).value_or(0);
  Expected<Diagonal> diagonal = diagonal_of(at, square, offset, dim1, dim2);
  if (!diagonal)
    return diagonal.takeError();
  Box box = box_of(line);
  Strides &strides = embeds ? box.to_strides : box.from_strides;
  strides = diagonal->strides;
  strides.push_back(diagonal->step);
  if (strides.size() != line.size())
    return cannot_run(at.context, "the result has another number of dimensions");
  (embeds ? box.to : box.from) = diagonal->first;
  return one(std::move(box), arg);
}

Expected<Moves> diagonal(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const Dims &dims = at.dims(arg), &to = *at.results[0];
  const Variant variant = at.context.variant();
  if (variant == Variant::OfVector && dims.size() == 1)
    return along_diagonal(at, arg, true, to, dims, 0, 1);
  bool last = variant == Variant::LastTwo;
  int64_t dim1 = at.number({"dim1"}, 2).value_or(last ? -2 : 0);
  int64_t dim2 = at.number({"dim2"}, 3).value_or(last ? -1 : 1);
  return along_diagonal(at, arg, false, dims, to, dim1, dim2);
}
Expected<Moves> diag_embed(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const Dims &dims = at.dims(arg), &to = *at.results[0];
  if (at.context.variant() == Variant::Flat)
    return along_diagonal(at, arg, true, to, {count(dims)}, 0, 1);
  int64_t dim1 = at.number({"dim1"}, 2).value_or(-2), dim2 = at.number({"dim2"}, 3).value_or(-1);
  return along_diagonal(at, arg, true, to, dims, dim1, dim2);
}

// Windows of one dimension: their number stands there, their length last.
Expected<Box> windows(const MoveSite &at, const Dims &whole, const Dims &cut) {
  Expected<unsigned> dim = at.dim(whole.size(), INT64_MAX, 1);
  if (!dim)
    return dim.takeError();
  std::optional<int64_t> step = at.number({"step"}, 3);
  if (!step || cut.size() != whole.size() + 1)
    return cannot_run(at.context, "its attributes do not say the step of its windows");
  Box box = box_of(cut);
  box.from_strides = strides_of(whole);
  box.from_strides.push_back(box.from_strides[*dim]);
  box.from_strides[*dim] *= *step;
  return box;
}
Expected<Moves> unfold(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  Expected<Box> box = windows(at, at.dims(arg), *at.results[0]);
  if (!box)
    return box.takeError();
  return one(std::move(*box), arg);
}
Expected<Moves> unfold_backward(const MoveSite &at) {
  unsigned arg = *at.arg("g");
  Expected<Box> box = windows(at, *at.results[0], at.dims(arg));
  if (!box)
    return box.takeError();
  std::swap(box->from_strides, box->to_strides);
  Moves moves = one(std::move(*box), arg);
  moves.adds = true;
  return moves;
}

// Strides count elements of a tensor that lies densely.
Expected<Moves> as_strided(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  std::optional<rules::Numbers> strides =
      rules::numbers_attr(at.context.app, {"stride", "strides"});
  const Dims &to = *at.results[0];
  if (!strides || strides->size() != to.size())
    return cannot_run(at.context, "its attributes do not say its strides");
  Box box = box_of(to);
  box.from_strides.assign(strides->begin(), strides->end());
  box.from = at.number({"storage_offset"}, 3).value_or(0);
  int64_t last = box.from;
  for (size_t d = 0; d < to.size(); ++d)
    last += std::max<int64_t>(to[d] - 1, 0) * box.from_strides[d];
  if (count(to) && last >= count(at.dims(arg)))
    return cannot_run(at.context, "it reaches beyond its operand");
  return one(std::move(box), arg);
}

// [... (c r s) h w] against [... c (h r) (w s)].
Expected<Box> pixels(const MoveSite &at, const Dims &deep, const Dims &wide) {
  size_t rank = deep.size();
  if (rank < 3 || wide.size() != rank || deep[rank - 2] == 0 || deep[rank - 1] == 0)
    return cannot_run(at.context, "it takes channels, rows and columns that are not empty");
  int64_t h = deep[rank - 2], w = deep[rank - 1], r = wide[rank - 2] / h, s = wide[rank - 1] / w;
  int64_t c = wide[rank - 3], images = count(deep) / std::max<int64_t>(c * r * s * h * w, 1);
  if (count(deep) != images * c * r * s * h * w)
    return cannot_run(at.context, "the result has another number of elements");
  int64_t image = c * r * s * h * w;
  return Box{{images, c, r, s, h, w},
             {image, r * s * h * w, s * h * w, h * w, w, 1},
             {image, h * r * w * s, w * s, 1, r * w * s, s}};
}
Expected<Moves> pixel_shuffle(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  Expected<Box> box = pixels(at, at.dims(arg), *at.results[0]);
  if (!box)
    return box.takeError();
  return one(std::move(*box), arg);
}
Expected<Moves> pixel_unshuffle(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  Expected<Box> box = pixels(at, *at.results[0], at.dims(arg));
  if (!box)
    return box.takeError();
  std::swap(box->from_strides, box->to_strides);
  return one(std::move(*box), arg);
}

Expected<Moves> channel_shuffle(const MoveSite &at) {
  unsigned arg = *at.arg("a");
  const Dims &dims = at.dims(arg);
  int64_t groups = at.number({"groups", "num_groups", "group"}, 1).value_or(0);
  if (dims.size() < 2 || groups < 1 || dims[1] % groups)
    return cannot_run(at.context, "its channels are not a multiple of its groups");
  DimSplit lines(dims, 1);
  int64_t each = lines.extent / groups, inner = lines.inner;
  return one({{lines.outer, groups, each, inner},
              {lines.extent * inner, each * inner, inner, 1},
              {lines.extent * inner, inner, groups * inner, 1}},
             arg);
}

Expected<Moves> meshgrid(const MoveSite &at) {
  if (rules::word_attr(at.context.app, {"indexing"}) == "xy")
    return cannot_run(at.context, "its dimensions are swapped");
  Moves moves;
  for (unsigned k = 0; k < 2 && k < at.results.size(); ++k) {
    if (!at.results[k])
      continue;
    Box box = box_of(*at.results[k]);
    box.from_strides = {k == 0 ? 1 : 0, k == 0 ? 0 : 1};
    moves.list.push_back({*at.arg(k ? "b" : "a"), k, std::move(box)});
  }
  return moves;
}

llvm::Error view_as_real(const Call<Complex> &call) {
  View<const Complex> a = call.operand("a");
  for (int64_t i = 0; i < a.size(); ++i) {
    call.results[0][2 * i] = a[i].real();
    call.results[0][2 * i + 1] = a[i].imag();
  }
  return llvm::Error::success();
}
llvm::Error view_as_complex(const Call<Complex> &call) {
  View<const Complex> a = call.operand("a");
  if (a.size() != 2 * call.results[0].size())
    return cannot_run(call.context, "its last dimension is no pair");
  for (int64_t i = 0; 2 * i + 1 < a.size(); ++i)
    call.results[0][i] = {a[2 * i].real(), a[2 * i + 1].real()};
  return llvm::Error::success();
}

const KernelDef kLayout[] = {
    moving<reshape>("reshape"),
    moving<reshape>("view_as"),
    {.row = "permute_dims",
     .real = permute_dims<double>,
     .complex = permute_dims<Complex>,
     .modular = permute_dims<Residue>,
     .assigns = true,
     .moves = true,
     .puts_back = moved_back<permute>,
     .boxes = permute_alone},
    moving<expand>("expand"),
    moving<expand>("expand_as"),
    moving<repeat>("repeat"),
    moving<cat>("cat"),
    moving<stack>("stack"),
    moving<block_diag>("block_diag"),
    moving<split>("split"),
    moving<slice>("slice"),
    moving<slice_backward>("slice_backward"),
    moving<slice_scatter>("slice_scatter"),
    moving<flip>("flip"),
    moving<roll>("roll"),
    moving<rot90>("rot90"),
    moving<constant_pad>("constant_pad"),
    moving<reflection_pad>("reflection_pad"),
    moving<replication_pad>("replication_pad"),
    moving<circular_pad>("circular_pad"),
    moving<tril>("tril"),
    moving<triu>("triu"),
    moving<diagonal>("diagonal"),
    moving<diag_embed>("diag_embed"),
    moving<unfold>("unfold"),
    {.row = "unfold_backward",
     .real = moved<unfold_backward, double>,
     .complex = moved<unfold_backward, Complex>,
     .modular = moved<unfold_backward, Residue>,
     .taped = moved<unfold_backward, Var>,
     .boxes = unfold_backward},
    moving<as_strided>("as_strided"),
    moving<pixel_shuffle>("pixel_shuffle"),
    moving<pixel_unshuffle>("pixel_unshuffle"),
    moving<channel_shuffle>("channel_shuffle"),
    moving<meshgrid>("meshgrid"),
    {.row = "view_as_real", .complex = view_as_real, .composed = composed_view_as_real},
    {.row = "view_as_complex", .complex = view_as_complex, .composed = composed_view_as_real},
};

} // namespace

llvm::ArrayRef<KernelDef> layout_kernels() { return kLayout; }

} // namespace spmd::runtime
