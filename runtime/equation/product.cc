// Planning a product: in which order arrays are joined, which steps are products of matrices, and
// the order of loops.
#include "runtime/equation/product.h"

#include "llvm/ADT/STLExtras.h"

#include <atomic>

namespace spmd::runtime {

namespace {

// Below this many products the packing of matrices costs more than it gains.
constexpr int64_t kFewProducts = 256;

std::atomic<bool> blas_is_used = true;

} // namespace

bool uses_blas() { return blas_is_used; }
void set_uses_blas(bool value) { blas_is_used = value; }

namespace {

int64_t volume(const Loops &loops, const Strides &array) {
  int64_t size = 1;
  for (size_t v = 0; v < loops.extents.size(); ++v)
    size *= array[v] ? loops.extents[v] : 1;
  return size;
}

// Strides of a dense array of the variables that are marked, the last one innermost.
Strides dense(const Loops &loops, llvm::ArrayRef<bool> marked) {
  Strides strides(loops.extents.size(), 0);
  int64_t size = 1;
  for (size_t v = loops.extents.size(); v-- > 0;)
    if (marked[v])
      strides[v] = size, size *= loops.extents[v];
  return strides;
}

// Variables that only one array has, or no other and not the output, are gone once it is summed.
class Chain {
public:
  explicit Chain(const Loops &loops) : loops_(loops) {
    for (size_t i = 0; i < loops.inputs.size(); ++i)
      open_.push_back({static_cast<int>(i), loops.inputs[i]});
  }
  struct Array {
    int id;
    Strides strides;
  };

  // The two whose product is the cheapest to make; it is taken only where something is summed.
  bool pick(size_t &left, size_t &right) const {
    int64_t least = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < open_.size(); ++i)
      for (size_t j = i + 1; j < open_.size(); ++j) {
        int64_t cost = 1;
        bool sums = false;
        for (size_t v = 0; v < loops_.extents.size(); ++v) {
          bool met = open_[i].strides[v] || open_[j].strides[v];
          cost *= met ? loops_.extents[v] : 1;
          sums |= met && !needed(v, i, j);
        }
        if (sums && cost < least)
          least = cost, left = i, right = j;
      }
    return least < std::numeric_limits<int64_t>::max();
  }
  // An input with a variable that nothing else has.
  bool pick_lonely(size_t &at) const {
    for (at = 0; at < open_.size(); ++at)
      for (size_t v = 0; v < loops_.extents.size(); ++v)
        if (open_[at].strides[v] && !needed(v, at, at))
          return true;
    return false;
  }
  // The loops that put some of the arrays together, into a dense one of what is still needed.
  Loops join(llvm::ArrayRef<size_t> positions, int id) {
    llvm::SmallVector<bool, 8> marked;
    Loops made{loops_.extents, {}, {}};
    for (size_t v = 0; v < loops_.extents.size(); ++v) {
      bool met =
          llvm::any_of(positions, [&](size_t place) { return open_[place].strides[v] != 0; });
      marked.push_back(met && needed(v, positions.front(), positions.back()));
      if (!met)
        made.extents[v] = 1;
    }
    made.output = dense(loops_, marked);
    for (size_t place : positions)
      made.inputs.push_back(open_[place].strides);
    Array joined{id, made.output};
    for (size_t place : llvm::reverse(positions))
      open_.erase(open_.begin() + static_cast<ptrdiff_t>(place));
    open_.push_back(joined);
    return made;
  }
  llvm::SmallVector<Array, 4> &open() { return open_; }

private:
  bool needed(size_t v, size_t i, size_t j) const {
    if (loops_.output[v])
      return true;
    for (size_t k = 0; k < open_.size(); ++k)
      if (k != i && k != j && open_[k].strides[v])
        return true;
    return false;
  }
  const Loops &loops_;
  llvm::SmallVector<Array, 4> open_;
};

} // namespace

Product::Product(const Loops &given) {
  Loops loops = given;
  for (size_t v = 0; v < loops.extents.size(); ++v) {
    empty_ |= loops.extents[v] == 0;
    if (loops.extents[v] == 1) { // no variable at all
      loops.output[v] = 0;
      for (Strides &input : loops.inputs)
        input[v] = 0;
    }
  }
  if (empty_)
    return;
  Chain chain(loops);
  auto ids = [&](llvm::ArrayRef<size_t> positions) {
    llvm::SmallVector<int, 4> found;
    for (size_t place : positions)
      found.push_back(chain.open()[place].id);
    return found;
  };
  auto join = [&](llvm::ArrayRef<size_t> positions) {
    llvm::SmallVector<int, 4> joined = ids(positions);
    Loops part = chain.join(positions, ~static_cast<int>(steps_.size()));
    add_step(joined, part, volume(part, part.output));
  };
  size_t left = 0, right = 0;
  while (chain.open().size() > 1 && chain.pick_lonely(left))
    join({left});
  while (chain.open().size() > 2 && chain.pick(left, right))
    join({left, right});
  Loops last{loops.extents, {}, loops.output};
  llvm::SmallVector<int, 4> joined;
  for (const Chain::Array &array : chain.open()) {
    joined.push_back(array.id);
    last.inputs.push_back(array.strides);
  }
  for (size_t v = 0; v < last.extents.size(); ++v) {
    auto has = [&](const Strides &input) { return input[v] != 0; };
    if (llvm::any_of(loops.inputs, has) && llvm::none_of(last.inputs, has) && !last.output[v])
      last.extents[v] = 1; // it was summed on the way
  }
  // Matrices are multiplied into a dense array, from which a loop nest may spread them.
  Matrices ignored;
  bool spreads = false;
  for (size_t v = 0; v < last.extents.size(); ++v)
    spreads |=
        last.extents[v] > 1 && last.inputs.size() == 2 && !last.inputs[0][v] && !last.inputs[1][v];
  if (spreads && matrices_of(last, ignored)) {
    join({0, 1});
    joined = {chain.open()[0].id};
    last.inputs = {chain.open()[0].strides};
  }
  add_step(joined, last, 0);
  find_covered(loops);
}

void Product::find_covered(const Loops &loops) {
  const Step &last = steps_.back();
  bool sums = llvm::any_of(
      last.nest, [](const Loop &loop) { return loop.strides.back() == 0 && loop.extent > 1; });
  if (last.multiplies ? !is_direct(last.matrices) : sums)
    return;
  llvm::SmallVector<std::pair<int64_t, int64_t>, 8> dims; // stride, extent
  for (size_t v = 0; v < loops.extents.size(); ++v)
    if (loops.output[v])
      dims.push_back({loops.output[v], loops.extents[v]});
  llvm::sort(dims);
  int64_t size = 1;
  for (const auto &[stride, extent] : dims) {
    if (stride != size)
      return;
    size *= extent;
  }
  covered_ = size;
}

void Product::add_step(llvm::ArrayRef<int> ids, const Loops &loops, int64_t size) {
  Step step{{ids.begin(), ids.end()}, size, false, {}, {}};
  step.multiplies = matrices_of(loops, step.matrices);
  if (!step.multiplies)
    step.nest = nest_of(loops);
  steps_.push_back(std::move(step));
}

// Neighbouring loops that all arrays run through as one are one; the longest contiguous run is the
// innermost.
Product::Nest Product::nest_of(const Loops &loops) {
  Nest nest;
  for (size_t v = 0; v < loops.extents.size(); ++v) {
    if (loops.extents[v] == 1)
      continue;
    Loop loop{loops.extents[v], {}};
    for (const Strides &input : loops.inputs)
      loop.strides.push_back(input[v]);
    loop.strides.push_back(loops.output[v]);
    nest.push_back(std::move(loop));
  }
  auto reach = [](const Loop &loop) {
    int64_t sum = 0;
    for (int64_t stride : loop.strides)
      sum += std::abs(stride);
    return sum;
  };
  llvm::stable_sort(nest, [&](const Loop &a, const Loop &b) { return reach(a) > reach(b); });
  for (size_t i = 1; i < nest.size();) {
    Loop &outer = nest[i - 1];
    const Loop &inner = nest[i];
    bool continues = llvm::all_of(llvm::zip(outer.strides, inner.strides), [&](auto pair) {
      return std::get<0>(pair) == std::get<1>(pair) * inner.extent;
    });
    if (!continues) {
      ++i;
      continue;
    }
    outer = {outer.extent * inner.extent, inner.strides};
    nest.erase(nest.begin() + static_cast<ptrdiff_t>(i));
  }
  if (nest.empty())
    nest.push_back({1, Strides(loops.inputs.size() + 1, 0)});
  return nest;
}

void Product::Side::add(int64_t extent, int64_t in_a, int64_t in_b, int64_t in_output) {
  extents.push_back(extent);
  a.push_back(in_a);
  b.push_back(in_b);
  output.push_back(in_output);
  size *= extent;
}

bool Product::matrices_of(const Loops &loops, Matrices &out) {
  if (loops.inputs.size() != 2)
    return false;
  const Strides &a = loops.inputs[0], &b = loops.inputs[1];
  // The order of the variables of a side: as the output has them, else as the left operand does.
  llvm::SmallVector<size_t, 8> order;
  for (size_t v = 0; v < loops.extents.size(); ++v)
    order.push_back(v);
  llvm::stable_sort(order, [&](size_t v, size_t w) {
    return std::pair(loops.output[v], a[v]) > std::pair(loops.output[w], a[w]);
  });
  out = {};
  for (size_t v : order) {
    int64_t extent = loops.extents[v];
    if (extent == 1)
      continue;
    Side *side = nullptr;
    if (loops.output[v])
      side = a[v] ? b[v] ? &out.batch : &out.rows : b[v] ? &out.columns : nullptr;
    else
      side = a[v] && b[v] ? &out.inner : nullptr;
    if (!side)
      return false;
    side->add(extent, a[v], b[v], loops.output[v]);
  }
  return out.inner.size > 1 && out.rows.size * out.columns.size * out.inner.size >= kFewProducts &&
         (out.rows.size > 1 || out.columns.size > 1);
}

} // namespace spmd::runtime
