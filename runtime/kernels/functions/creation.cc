// Constants: what a spelling fills a tensor with.
#include "runtime/kernels/composed/composition.h"
#include "runtime/kernels/positions.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

double pick(std::optional<double> stated, double absent) { return stated.value_or(absent); }

bool is_range(Variant variant) {
  return variant == Variant::Range || variant == Variant::Iota || variant == Variant::Linear ||
         variant == Variant::Logarithmic;
}

// Numbers in a row: start + step * i.
struct Range {
  double start = 0, step = 1;
};
Range range_of(const KernelContext &context, int64_t size) {
  const Variant variant = context.variant();
  if (variant == Variant::Linear || variant == Variant::Logarithmic) {
    double start = pick(argument(context, {"start"}, 0), 0),
           end = pick(argument(context, {"end"}, 1), 1);
    return {start, size > 1 ? (end - start) / static_cast<double>(size - 1) : 0};
  }
  if (variant == Variant::Iota)
    return {};
  // `arange(end)`, `arange(start, end, step)`.
  bool only_end = !argument(context, {}, 1) && !context.app.attr("start");
  return {only_end ? 0 : pick(argument(context, {"start"}, 0), 0),
          pick(argument(context, {"step"}, 2), 1)};
}

template <class T> void fill_range(const KernelContext &context, View<T> to) {
  const Variant variant = context.variant();
  auto dim = static_cast<unsigned>(rules::dim_number(context.app).value_or(0));
  DimSplit cut(*to.dims, variant == Variant::Iota && dim < to.rank() ? dim : 0);
  Range range = range_of(context, cut.extent);
  double base = pick(argument(context, {"base"}, 3), 10);
  for (int64_t at = 0; at < to.size(); ++at) {
    auto i = static_cast<double>(at / cut.inner % cut.extent);
    double last = static_cast<double>(cut.extent - 1);
    // From the nearer end, so that the last number is exact.
    double value = variant == Variant::Linear && i > last / 2
                       ? range.start + range.step * last - range.step * (last - i)
                       : range.start + range.step * i;
    to[at] = constant<T>(variant == Variant::Logarithmic ? std::pow(base, value) : value);
  }
}

template <class T> void fill_eye(View<T> to) {
  int64_t columns = to.rank() ? to.dims->back() : 1;
  int64_t rows = to.rank() > 1 ? to.dim(to.rank() - 2) : 1;
  for (int64_t at = 0; at < to.size(); ++at)
    to[at] = T(at / columns % rows == at % columns ? 1 : 0);
}

// Row and column of each element of one triangle, row by row: 2 x n.
template <class T> Error fill_triangle(const KernelContext &context, View<T> to) {
  auto rows = static_cast<int64_t>(pick(argument(context, {"row"}, 0), 0));
  auto columns = static_cast<int64_t>(pick(argument(context, {"col"}, 1), 0));
  auto offset = static_cast<int64_t>(pick(argument(context, {"offset"}, 2), 0));
  bool lower = context.variant() == Variant::LowerTriangle;
  int64_t n = 0, most = to.rank() == 2 ? to.dim(1) : 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      if (lower ? c - r <= offset : c - r >= offset) {
        if (n < most)
          to[n] = constant<T>(static_cast<double>(r)),
          to[most + n] = constant<T>(static_cast<double>(c));
        ++n;
      }
  return n == most ? Error::success() : wrong_number(context, n, most);
}

// The numbers of a nested list, in order.
template <class T>
void flatten(const KernelContext &context, const ir::AttrValue &value, std::vector<T> &out) {
  if (value.form == ir::AttrForm::List)
    for (const ir::AttrValue &item : context.app.program.lists[value.as<ir::AttrListId>()].items)
      flatten(context, item, out);
  else if (std::optional<double> number = number_of(value))
    out.push_back(constant<T>(*number));
}

// `tensor`: one number everywhere, or the numbers one by one.
template <class T> Error fill_data(const KernelContext &context, View<T> to) {
  const ir::AttrValue *data = rules::any_attr(context.app, {"data", "value", "fill_value", "s"});
  std::vector<T> numbers;
  if (data)
    flatten(context, *data, numbers);
  else if (std::optional<double> number = argument(context, {}, 0))
    numbers.push_back(constant<T>(*number));
  if (numbers.size() != 1 && static_cast<int64_t>(numbers.size()) != to.size())
    return wrong_number(context, static_cast<int64_t>(numbers.size()), to.size());
  for (int64_t at = 0; at < to.size(); ++at)
    to[at] = numbers[numbers.size() == 1 ? 0 : static_cast<size_t>(at)];
  return Error::success();
}

// The one number that all elements are; none: they differ, or it is not stated.
std::optional<double> number_of_all(const KernelContext &context) {
  switch (context.variant()) {
  case Variant::Empty: // what is there is not said: zeros
    return 0;
  case Variant::Ones:
    return 1;
  case Variant::Plain: {
    // After the size (`full`), or after what gives the extents (`full_like`).
    std::optional<double> value = argument(context, {"fill_value", "value"}, 1);
    return value ? value : argument(context, {}, 0);
  }
  default:
    return std::nullopt;
  }
}

// The one number of `tensor`.
std::optional<double> only_number(const KernelContext &context) {
  const ir::AttrValue *data = rules::any_attr(context.app, {"data", "value", "fill_value", "s"});
  std::vector<double> numbers;
  if (data)
    flatten(context, *data, numbers);
  else if (std::optional<double> number = argument(context, {}, 0))
    numbers.push_back(*number);
  return numbers.size() == 1 ? std::optional(numbers[0]) : std::nullopt;
}

bool composed_range(Composition &of) {
  const Variant variant = of.context.variant();
  const DeviceArray &to = *of.result(0);
  auto dim = static_cast<unsigned>(rules::dim_number(of.context.app).value_or(0));
  if (variant == Variant::Linear || variant == Variant::Logarithmic || to.dims->empty())
    return false;
  dim = variant == Variant::Iota && dim < to.dims->size() ? dim : 0;
  const int64_t extent = (*to.dims)[dim];
  const Range range = range_of(of.context, extent);
  return of.make(to, *to.dims, of.positions(to.dims->size(), dim, extent),
                 [&](llvm::ArrayRef<TracedNumber> s) { return range.start + range.step * s[0]; });
}

bool composed_constant(Composition &of) {
  const Variant variant = of.context.variant();
  if (!of.by && is_range(variant))
    return composed_range(of);
  std::optional<double> number =
      variant == Variant::Data ? only_number(of.context) : number_of_all(of.context);
  return !of.by && number &&
         of.make(*of.result(0), *of.result(0)->dims, {},
                 [&](llvm::ArrayRef<TracedNumber>) { return TracedNumber(*number); });
}
bool composed_zeros(Composition &of) {
  return !of.by && of.make(*of.result(0), *of.result(0)->dims, {},
                           [](llvm::ArrayRef<TracedNumber>) { return TracedNumber(0.0); });
}

template <class T> Error constant_row(const Call<T> &call) {
  const KernelContext &context = call.context;
  View<T> to = call.results[0];
  if (std::optional<double> number = number_of_all(context)) {
    std::fill_n(to.data, to.size(), constant<T>(*number));
    return Error::success();
  }
  if (is_range(context.variant())) {
    fill_range(context, to);
    return Error::success();
  }
  switch (context.variant()) {
  case Variant::Eye:
    fill_eye(to);
    return Error::success();
  case Variant::LowerTriangle:
  case Variant::UpperTriangle:
    return fill_triangle(context, to);
  case Variant::Data:
    return fill_data(context, to);
  case Variant::Counter: // high and low words of a place
    for (int64_t at = 0; at < to.size(); ++at) {
      to[at] = constant<T>(static_cast<double>(at >> 32));
      if (call.results.size() > 1 && call.results[1])
        call.results[1][at] = constant<T>(static_cast<double>(at & 0xFFFFFFFF));
    }
    return Error::success();
  default:
    return cannot_run(context, "which number it is filled with is not stated");
  }
}

template <class T> Error zeros(const Call<T> &) { return Error::success(); }

template <class T> Error fill(const Call<T> &call) {
  View<const T> v = call.operand("v");
  View<T> to = call.results[0];
  std::optional<double> number = call.context.number(call.context.operand("v"));
  if (!v && !number)
    return cannot_run(call.context, "which number it is filled with is not stated");
  std::fill_n(to.data, to.size(), v ? v[0] : constant<T>(*number));
  return Error::success();
}

constexpr KernelDef kCreation[] = {
    {.row = "constant",
     .real = constant_row<double>,
     .complex = constant_row<Complex>,
     .modular = constant_row<Residue>,
     .composed = composed_constant},
    {.row = "constant_like",
     .real = constant_row<double>,
     .complex = constant_row<Complex>,
     .modular = constant_row<Residue>,
     .composed = composed_constant},
    {.row = "zeros",
     .real = zeros<double>,
     .complex = zeros<Complex>,
     .modular = zeros<Residue>,
     .composed = composed_zeros},
    {.row = "zeros_like",
     .real = zeros<double>,
     .complex = zeros<Complex>,
     .modular = zeros<Residue>,
     .composed = composed_zeros},
    {.row = "fill",
     .real = fill<double>,
     .complex = fill<Complex>,
     .modular = fill<Residue>,
     .taped = fill<Var>},
};

} // namespace

llvm::ArrayRef<KernelDef> creation_kernels() { return kCreation; }

} // namespace spmd::runtime
