// Writes the kernel of a loop nest as text. A thread works on some elements that lie side by side,
// `width` of them, which it loads at once; results that are combined of many elements have several
// threads each, and parts of their own where there are few results. In which order elements are
// combined depends on extents and elements alone.
#include "runtime/nccl/nest_source.h"

#include "runtime/commands/scalar.h"

#include <algorithm>
#include <cstddef>

namespace spmd::nccl {
namespace {

using device::bytes_of;
using device::iterations;

constexpr int64_t kVectorBytes = 16; // that a thread loads at once
constexpr int64_t kMostWidth = 8;
constexpr int64_t kBlocksWanted = 2048; // enough to fill the devices of today
constexpr int64_t kMostBlocks = 1 << 16;
constexpr int64_t kColumnThreads = 8, kFewInner = 64;
constexpr int64_t kLeastOfPart = 8; // turns of a thread

// In which way threads share the work.
enum class Form {
  Each,    // nothing is combined
  Rows,    // threads side by side take what is combined, side by side
  Columns, // threads side by side take results side by side
};

std::string text_of(int64_t number) { return std::to_string(number); }

class Writer {
public:
  Writer(const SpmdLoopNest &nest, int64_t scratch);
  NestSource write();

private:
  void choose_form();
  void choose_width();
  int64_t widest(const SpmdArray &array, uint32_t loop) const;
  bool is_vector(const SpmdArray &array) const;
  bool is_gathered_vector(const SpmdArray &array) const;
  void line(const std::string &text) { text_ += std::string(2 * depth_, ' ') + text + "\n"; }
  void open(const std::string &text) {
    line(text + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  void coordinates(const std::string &place, uint32_t first, uint32_t last, uint32_t wide);
  std::string offset(const SpmdArray &array, uint32_t loops) const;
  std::string element(uint32_t i) const { return "E" + text_of(i); }
  void elements();
  void load_arrays();
  void numbers_of_arrays();
  void program();
  void finish(const std::string &value, const std::string &cell);
  void each();
  void combined();
  void combine_lanes();
  void store_results();

  const SpmdLoopNest &nest_;
  uint32_t split_; // outer loops
  int64_t outer_, inner_;
  Form form_ = Form::Each;
  uint32_t wide_loop_ = 0; // along which elements are taken side by side
  int64_t width_ = 1;
  int64_t threads_per_result_ = 1, results_ = 1; // results: in a block
  int64_t parts_ = 1, blocks_ = 1;
  int depth_ = 0;
  std::string text_;
  const int64_t scratch_;
};

Writer::Writer(const SpmdLoopNest &nest, int64_t scratch)
    : nest_(nest), split_(nest.loops - nest.inner), outer_(iterations(nest.extents, 0, split_)),
      inner_(iterations(nest.extents, split_, nest.loops)), scratch_(scratch) {}

bool is_data(const SpmdArray &array) { return array.element != kSpmdNoElement; }

// Elements that lie side by side along `loop` and are loaded at once, each step of another loop a
// whole number of them apart: how many, at most.
int64_t Writer::widest(const SpmdArray &array, uint32_t loop) const {
  const auto size = static_cast<int64_t>(bytes_of(array.element));
  int64_t width = std::min(kMostWidth, kVectorBytes / size);
  auto divides = [&] {
    if (static_cast<int64_t>(array.data) % (width * size) != 0 ||
        (array.index != ~0u && array.stride % width != 0))
      return false;
    for (uint32_t l = 0; l < nest_.loops; ++l)
      if (l != loop && array.strides[l] % width != 0)
        return false;
    return true;
  };
  while (width > 1 && !divides())
    width /= 2;
  return width;
}

bool Writer::is_gathered_vector(const SpmdArray &array) const {
  return array.index == ~0u || nest_.in[array.index].strides[wide_loop_] == 0;
}
bool Writer::is_vector(const SpmdArray &array) const {
  return width_ > 1 && is_data(array) && array.strides[wide_loop_] == 1 &&
         is_gathered_vector(array) && widest(array, wide_loop_) % width_ == 0;
}

void Writer::choose_form() {
  if (nest_.inner == 0) {
    form_ = Form::Each;
    wide_loop_ = nest_.loops > 0 ? nest_.loops - 1 : 0;
    return;
  }
  bool rows = false, columns = false;
  for (uint32_t i = 0; i < nest_.arrays; ++i) {
    if (!is_data(nest_.in[i]))
      continue;
    rows |= nest_.in[i].strides[nest_.loops - 1] == 1;
    columns |= split_ > 0 && nest_.in[i].strides[split_ - 1] == 1;
  }
  form_ = columns && !rows ? Form::Columns : Form::Rows;
  wide_loop_ = form_ == Form::Rows ? nest_.loops - 1 : split_ - 1;
}

// The same for every alignment where elements are combined: it decides their order. Loads of arrays
// that are not aligned so are narrow.
void Writer::choose_width() {
  if (nest_.loops == 0)
    return;
  width_ = kMostWidth;
  for (uint32_t i = 0; i < nest_.arrays; ++i)
    if (is_data(nest_.in[i]))
      width_ = std::min(width_, kVectorBytes / static_cast<int64_t>(bytes_of(nest_.in[i].element)));
  if (form_ == Form::Each) {
    width_ = std::min(width_, kVectorBytes / static_cast<int64_t>(bytes_of(nest_.out.element)));
    if (nest_.out.strides[wide_loop_] != 1)
      width_ = 1;
  }
  if (form_ == Form::Columns)
    width_ = std::min<int64_t>(width_, 4);
  while (width_ > 1 && nest_.extents[wide_loop_] % width_ != 0)
    width_ /= 2;
}

// Declares the coordinates c0, c1, ... of a place that counts groups of `width_` along `wide`.
void Writer::coordinates(const std::string &place, uint32_t first, uint32_t last, uint32_t wide) {
  if (first == last)
    return;
  line("Place rest_" + text_of(first) + " = " + place + ";");
  const std::string rest = "rest_" + text_of(first);
  for (uint32_t l = last; l-- > first;) {
    const bool grouped = l == wide && width_ > 1;
    const int64_t extent = grouped ? nest_.extents[l] / width_ : nest_.extents[l];
    const std::string scale = grouped ? " * " + text_of(width_) : "";
    if (l == first) {
      line("const Place c" + text_of(l) + " = " + rest + scale + ";");
      continue;
    }
    line("const Place c" + text_of(l) + " = " + rest + " % " + text_of(extent) + "u" + scale + ";");
    line(rest + " /= " + text_of(extent) + "u;");
  }
}

// In elements, of the first one of a group.
std::string Writer::offset(const SpmdArray &array, uint32_t loops) const {
  std::string sum;
  for (uint32_t l = 0; l < loops; ++l)
    if (array.strides[l] != 0)
      sum += (sum.empty() ? "" : " + ") + ("int64_t(c" + text_of(l) + ")") +
             (array.strides[l] == 1 ? "" : " * " + text_of(array.strides[l]) + "ll");
  return sum.empty() ? "0" : sum;
}

void Writer::elements() {
  for (uint32_t i = 0; i < nest_.arrays; ++i)
    if (is_data(nest_.in[i]))
      line("using " + element(i) + " = Element<" + text_of(nest_.in[i].element) + ">;");
  line("using EO = Element<" + text_of(nest_.out.element) + ">;");
}

// Where the arrays are read for a group of elements, and those that are loaded at once.
void Writer::load_arrays() {
  for (uint32_t i = 0; i < nest_.arrays; ++i) {
    const SpmdArray &array = nest_.in[i];
    const std::string n = text_of(i);
    line("const int64_t at" + n + " = " + offset(array, nest_.loops) + ";");
    if (is_data(array))
      line("const auto *p" + n + " = reinterpret_cast<const " + element(i) + "::Cell *>(a.in[" + n +
           "]);");
  }
  for (uint32_t i = 0; i < nest_.arrays; ++i) {
    const SpmdArray &array = nest_.in[i];
    if (!is_vector(array))
      continue;
    const std::string n = text_of(i),
                      wide = "Wide<" + element(i) + "::Cell, " + text_of(width_) + ">";
    line(wide + " w" + n + " = {};");
    if (array.index == ~0u) {
      line("w" + n + " = *reinterpret_cast<const " + wide + " *>(p" + n + " + at" + n + ");");
      continue;
    }
    const std::string j = text_of(array.index);
    line("const int64_t entry" + n + " = static_cast<int64_t>(" + element(array.index) +
         "::number(p" + j + "[at" + j + "])) - " + text_of(array.begin) + "ll;");
    line("const bool there" + n + " = entry" + n + " >= 0 && entry" + n + " < " +
         text_of(array.extent) + "ll;");
    line("if (there" + n + ")");
    line("  w" + n + " = *reinterpret_cast<const " + wide + " *>(p" + n + " + at" + n + " + entry" +
         n + " * " + text_of(array.stride) + "ll);");
  }
}

// x0, x1, ...: of element `v` of the group.
void Writer::numbers_of_arrays() {
  auto along = [&](const SpmdArray &array) {
    const int64_t stride = nest_.loops > 0 ? array.strides[wide_loop_] : 0;
    return stride == 0 || width_ == 1 ? std::string() : " + v * " + text_of(stride) + "ll";
  };
  for (uint32_t i = 0; i < nest_.arrays; ++i) {
    const SpmdArray &array = nest_.in[i];
    const std::string n = text_of(i), x = "const Number x" + n + " = ";
    const std::string at = "at" + n + along(array);
    if (!is_data(array)) {
      line(x + "static_cast<double>(" + at + ");");
    } else if (is_vector(array)) {
      const std::string there = array.index == ~0u ? "" : "!there" + n + " ? 0.0 : ";
      line(x + there + element(i) + "::number(w" + n + ".at[v]);");
    } else if (array.index == ~0u) {
      line(x + element(i) + "::number(p" + n + "[" + at + "]);");
    } else {
      const SpmdArray &index = nest_.in[array.index];
      const std::string j = text_of(array.index);
      const std::string place = "at" + j + along(index);
      line("const int64_t entry" + n + " = static_cast<int64_t>(" +
           (is_data(index) ? element(array.index) + "::number(p" + j + "[" + place + "])" : place) +
           ") - " + text_of(array.begin) + "ll;");
      line(x + "entry" + n + " < 0 || entry" + n + " >= " + text_of(array.extent) +
           "ll ? 0.0 : " + element(i) + "::number(p" + n + "[" + at + " + entry" + n + " * " +
           text_of(array.stride) + "ll]);");
    }
  }
}

void Writer::program() {
  for (uint32_t s = 0; s < nest_.steps; ++s) {
    const SpmdScalarStep step = nest_.program[s];
    const std::string made = "const Number s" + text_of(s) + " = ";
    auto value = [](uint8_t number) { return "s" + text_of(number); };
    if (step.op == kSpmdInput)
      line(made + "x" + text_of(step.a) + ";");
    else if (step.op == kSpmdConstant)
      line(made + (computes_in_float(nest_) ? "a.narrow_numbers[" : "a.numbers[") +
           text_of(step.a) + "];");
    else if (step.op == kSpmdRound)
      line(made + "Element<" + text_of(step.b) + ">::rounded(" + value(step.a) + ");");
    else {
      const uint32_t count = device::operand_count(step.op);
      line(made + "done(" + text_of(step.op) + ", " + value(step.a) + ", " +
           value(count > 1 ? step.b : step.a) + ", " + value(count > 2 ? step.c : step.a) + ");");
    }
  }
}

void Writer::finish(const std::string &value, const std::string &cell) {
  if (nest_.factor != 1 || nest_.divisor != 1)
    line(value + " = " + value + " * Number(a.factor) / Number(a.divisor);");
  if (nest_.adds)
    line(value + " += EO::number(" + cell + ");");
  line(cell + " = EO::cell(" + value + ");");
}

void Writer::each() {
  const int64_t groups = outer_ / width_;
  blocks_ = std::min((groups + kNestThreads - 1) / kNestThreads, kMostBlocks);
  line("const Place step = Place(gridDim.x) * " + text_of(kNestThreads) + "u;");
  open("for (Place group = Place(blockIdx.x) * " + text_of(kNestThreads) +
       "u + threadIdx.x; group < " + text_of(groups) + "u; group += step)");
  coordinates("group", 0, nest_.loops, wide_loop_);
  load_arrays();
  line("const int64_t to = " + offset(nest_.out, nest_.loops) + ";");
  line("auto *out = reinterpret_cast<EO::Cell *>(a.out) + to;");
  const bool wide = is_vector(nest_.out);
  const std::string type = "Wide<EO::Cell, " + text_of(width_) + ">";
  if (wide)
    line(nest_.adds ? type + " results = *reinterpret_cast<const " + type + " *>(out);"
                    : type + " results;");
  line("#pragma unroll");
  open("for (int v = 0; v < " + text_of(width_) + "; ++v)");
  numbers_of_arrays();
  program();
  line("Number value = s" + text_of(nest_.steps - 1) + ";");
  finish("value", wide ? "results.at[v]" : "out[v]");
  close();
  if (wide)
    line("*reinterpret_cast<" + type + " *>(out) = results;");
  close();
}

// values[] of the block: one after another for `results_`, thread by thread (Columns), or the
// threads of one result side by side (Rows).
void Writer::combine_lanes() {
  if (threads_per_result_ == 1)
    return;
  const bool rows = form_ == Form::Rows;
  const std::string held = text_of(rows ? 1 : width_), stride = text_of(rows ? 1 : results_);
  line("for (int r = 0; r < " + held + "; ++r)");
  line("  values[r][threadIdx.x] = value[r];");
  line("__syncthreads();");
  open("for (unsigned half = " + text_of(threads_per_result_ / 2) + "; half > 0; half /= 2)");
  line("if (lane < half)");
  line("  for (int r = 0; r < " + held + "; ++r)");
  line("    values[r][threadIdx.x] = combined(C, values[r][threadIdx.x], values[r][threadIdx.x + "
       "half * " +
       stride + "]);");
  line("__syncthreads();");
  close();
}

void Writer::store_results() {
  const std::string held = text_of(form_ == Form::Rows ? 1 : width_);
  open("for (int r = 0; r < " + held + "; ++r)");
  if (threads_per_result_ > 1)
    line("value[r] = values[r][threadIdx.x];");
  if (parts_ > 1) {
    line("a.partial[(result * " + held + " + r) * " + text_of(parts_) + " + part] = value[r];");
  } else {
    const int64_t stride = form_ == Form::Columns ? nest_.out.strides[wide_loop_] : 0;
    line("auto &cell = reinterpret_cast<EO::Cell *>(a.out)[" + offset(nest_.out, split_) +
         " + r * " + text_of(stride) + "ll];");
    finish("value[r]", "cell");
  }
  close();
}

int64_t power_up_to(int64_t number, int64_t most) {
  int64_t power = 1;
  while (power < number && power < most)
    power *= 2;
  return power;
}

void Writer::combined() {
  const bool rows = form_ == Form::Rows;
  const int64_t turns = rows ? inner_ / width_ : inner_;      // groups that are combined
  const int64_t of_threads = rows ? outer_ : outer_ / width_; // results, or groups of them
  threads_per_result_ = rows                ? power_up_to(turns, kNestThreads)
                        : turns < kFewInner ? 1
                                            : kColumnThreads;
  results_ = kNestThreads / threads_per_result_;
  const int64_t blocks = (of_threads + results_ - 1) / results_;
  parts_ = std::min(
      {kBlocksWanted / blocks, turns / (threads_per_result_ * kLeastOfPart), scratch_ / outer_});
  parts_ = std::max<int64_t>(parts_, 1);
  blocks_ = std::min(blocks * parts_, kMostBlocks);

  const int64_t held = rows ? 1 : width_;
  line("constexpr uint32_t C = " + text_of(nest_.combiner) + ";");
  if (threads_per_result_ > 1)
    line("__shared__ double values[" + text_of(held) + "][" + text_of(kNestThreads) + "];");
  const std::string lane =
      rows ? "threadIdx.x % " + text_of(threads_per_result_) : "threadIdx.x / " + text_of(results_);
  const std::string mine =
      rows ? "threadIdx.x / " + text_of(threads_per_result_) : "threadIdx.x % " + text_of(results_);
  line("const unsigned lane = " + lane + "u;");
  open("for (Place block = blockIdx.x; block < " + text_of(blocks * parts_) +
       "u; block += gridDim.x)");
  line("const Place part = block % " + text_of(parts_) + "u;");
  line("const Place result = block / " + text_of(parts_) + "u * " + text_of(results_) + "u + " +
       mine + "u;");
  line("const bool any = result < " + text_of(of_threads) + "u;");
  coordinates("any ? result : Place(0)", 0, split_, rows ? ~0u : wide_loop_);
  line("double value[" + text_of(held) + "];");
  line("for (double &each : value) each = neutral(C);");
  line("const Place end = any ? Place(uint64_t(" + text_of(turns) + ") * (part + 1) / " +
       text_of(parts_) + "u) : Place(0);");
  line("#pragma unroll 4");
  open("for (Place turn = Place(uint64_t(" + text_of(turns) + ") * part / " + text_of(parts_) +
       "u) + lane; turn < end; turn += " + text_of(threads_per_result_) + "u)");
  coordinates("turn", split_, nest_.loops, rows ? wide_loop_ : ~0u);
  load_arrays();
  line("#pragma unroll");
  open("for (int v = 0; v < " + text_of(width_) + "; ++v)");
  numbers_of_arrays();
  program();
  line(std::string("value[") + (rows ? "0" : "v") + "] = combined(C, value[" + (rows ? "0" : "v") +
       "], s" + text_of(nest_.steps - 1) + ");");
  close();
  close();
  combine_lanes();
  open(threads_per_result_ > 1 ? "if (any && lane == 0)" : "if (any)");
  store_results();
  close();
  if (threads_per_result_ > 1)
    line("__syncthreads();");
  close();
}

NestSource Writer::write() {
  choose_form();
  choose_width();
  const bool narrow = outer_ * inner_ < int64_t(1) << 31;
  line("#include \"runtime/nccl/cells.h\"");
  line("using namespace spmd::device;");
  line("using namespace spmd::nccl;");
  line(std::string("using Place = ") + (narrow ? "uint32_t;" : "uint64_t;"));
  line(std::string("using Number = ") + (computes_in_float(nest_) ? "float;" : "double;"));
  elements();
  open("extern \"C\" __global__ void __launch_bounds__(" + text_of(kNestThreads) +
       ") nest(const __grid_constant__ NestArguments a)");
  if (form_ == Form::Each)
    each();
  else
    combined();
  close();
  return {std::move(text_), blocks_, parts_};
}

} // namespace

bool computes_in_float(const SpmdLoopNest &nest) {
  auto is_exact_in_float = [](uint32_t element) {
    return element == kSpmdBool || element == kSpmdI8 || element == kSpmdU8 ||
           element == kSpmdI16 || element == kSpmdU16 || element == kSpmdBF16 ||
           element == kSpmdF16 || element == kSpmdF32;
  };
  if (nest.inner > 0 || (nest.out.element != kSpmdBF16 && nest.out.element != kSpmdF16))
    return false;
  for (uint32_t i = 0; i < nest.arrays; ++i)
    if (!is_exact_in_float(nest.in[i].element))
      return false;
  auto is_given = [&](uint8_t step) { return nest.program[step].op <= kSpmdConstant; };
  auto may_jump = [&](const SpmdScalarStep &step) {
    switch (step.op) {
    case kSpmdLess:
    case kSpmdLessEqual:
    case kSpmdEqual:
      return !is_given(step.a) || !is_given(step.b);
    case kSpmdFloor:
    case kSpmdCeil:
    case kSpmdTrunc:
    case kSpmdFmod:
      return true;
    case kSpmdRound: // to the neighbour at most, as any error may
      return step.b != kSpmdBF16 && step.b != kSpmdF16 && step.b != kSpmdF32;
    default:
      return false;
    }
  };
  return std::none_of(nest.program, nest.program + nest.steps, may_jump);
}

bool has_nest_source(const SpmdLoopNest &nest) {
  auto has_cells = [](uint32_t element) {
    return element != kSpmdF8E4M3 && element != kSpmdF8E5M2 && element != kSpmdC64 &&
           element != kSpmdC128;
  };
  for (uint32_t i = 0; i < nest.arrays; ++i)
    if (!has_cells(nest.in[i].element))
      return false;
  return has_cells(nest.out.element);
}

std::string nest_key(const SpmdLoopNest &nest) {
  SpmdLoopNest key{};
  key.loops = nest.loops;
  key.inner = nest.inner;
  std::copy_n(nest.extents, nest.loops, key.extents);
  auto copy_array = [&](const SpmdArray &from, SpmdArray &to) {
    to = from;
    to.data = from.data % kVectorBytes;
    std::fill(to.strides + nest.loops, to.strides + kSpmdLoops, 0);
  };
  key.arrays = nest.arrays;
  for (uint32_t i = 0; i < nest.arrays; ++i)
    copy_array(nest.in[i], key.in[i]);
  copy_array(nest.out, key.out);
  key.combiner = nest.combiner;
  key.adds = nest.adds;
  key.factor = key.divisor = nest.factor == 1 && nest.divisor == 1; // scaled or not
  key.steps = nest.steps;
  std::copy_n(nest.program, nest.steps, key.program);
  const auto *bytes = reinterpret_cast<const char *>(&key);
  const size_t used = offsetof(SpmdLoopNest, program) + nest.steps * sizeof(SpmdScalarStep);
  return std::string(bytes, used);
}

NestSource nest_source(const SpmdLoopNest &nest, int64_t scratch) {
  return Writer(nest, scratch).write();
}

} // namespace spmd::nccl
