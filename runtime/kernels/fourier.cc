// Discrete Fourier transforms along some dimensions, of complex numbers, from real ones and back.
#include "runtime/kernels/places.h"
#include "runtime/kernels/rows.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::runtime {

namespace {

using llvm::Error;

// In place: halves as long as the length is even, then the sum as it is defined.
void transform(std::vector<Complex> &line, double sign) {
  size_t n = line.size();
  if (n <= 1)
    return;
  auto turn = [&](size_t k, size_t of) {
    double angle = sign * 2 * kPi * static_cast<double>(k % of) / static_cast<double>(of);
    return Complex(std::cos(angle), std::sin(angle));
  };
  std::vector<Complex> out(n);
  if (n % 2) {
    for (size_t k = 0; k < n; ++k)
      for (size_t j = 0; j < n; ++j)
        out[k] += line[j] * turn(k * j, n);
    line = std::move(out);
    return;
  }
  std::vector<Complex> even(n / 2), odd(n / 2);
  for (size_t i = 0; i < n / 2; ++i)
    even[i] = line[2 * i], odd[i] = line[2 * i + 1];
  transform(even, sign);
  transform(odd, sign);
  for (size_t k = 0; k < n / 2; ++k) {
    Complex turned = turn(k, n) * odd[k];
    line[k] = even[k] + turned, line[k + n / 2] = even[k] - turned;
  }
}

enum class Ends : uint8_t { Complex, FromReal, ToReal };
struct Fourier {
  llvm::SmallVector<unsigned, 4> dims; // the last one has a real end
  bool inverse = false;
  Ends ends = Ends::Complex;
  double power = 0; // the result is divided by this power of the number of elements
};

double power_of(const Site &site, bool inverse) {
  llvm::StringRef word = rules::word_attr(site.app, {"norm"});
  if (word == "ortho")
    return 0.5;
  if (word == "forward")
    return inverse ? 0 : 1;
  // 0: not at all, 1: by the root, 2: by the number of elements.
  if (std::optional<int64_t> number = rules::number_attr(site.app, {"normalization"}))
    return static_cast<double>(*number) / 2;
  return inverse ? 1 : 0;
}

// The `fft_type` of XLA as a word or a number, in the order of these words.
std::optional<Fourier> of_xla(const Site &site, unsigned rank) {
  std::optional<int64_t> number = rules::number_attr(site.app, {"fft_type"});
  llvm::StringRef word = rules::word_attr(site.app, {"fft_type"});
  word = word.substr(word.rfind('.') + 1);
  static constexpr llvm::StringLiteral kWords[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
  for (int64_t i = 0; i < 4; ++i)
    if (word.equals_insensitive(kWords[i]))
      number = i;
  std::optional<rules::Numbers> lengths = rules::numbers_attr(site.app, {"fft_lengths"});
  if (!number || *number < 0 || *number > 3 || !lengths || lengths->size() > rank)
    return std::nullopt;
  Fourier out;
  for (auto d = static_cast<unsigned>(rank - lengths->size()); d < rank; ++d)
    out.dims.push_back(d);
  out.inverse = *number % 2;
  out.ends = *number < 2 ? Ends::Complex : out.inverse ? Ends::ToReal : Ends::FromReal;
  out.power = out.inverse;
  return out;
}

std::optional<Fourier> fourier_of(const Site &site, unsigned rank) {
  llvm::StringRef name = bare_name(site);
  if (rules::any_attr(site.app, {"fft_lengths"}))
    return of_xla(site, rank);
  if (name == "stft" || name == "istft")
    return std::nullopt;
  Fourier out;
  bool multiple = name.endswith("n") || name.endswith("2") || name.startswith("_fft");
  if (rules::dim_attr(site.app))
    for (int64_t dim : rules::dim_numbers(site.app).value_or(rules::Numbers())) {
      std::optional<unsigned> place = rules::place_of(dim, rank);
      if (!place)
        return std::nullopt;
      out.dims.push_back(*place);
    }
  else if (!multiple || name.endswith("2"))
    for (unsigned d = rank - std::min(rank, multiple ? 2u : 1u); d < rank; ++d)
      out.dims.push_back(d);
  else
    for (unsigned d = 0; d < rank; ++d)
      out.dims.push_back(d);
  bool forward = !site.app.attr("forward") || rules::flag_attr(site.app, "forward");
  out.inverse = name.contains("ifft") || name.contains("irfft") || name == "_fft_c2r" || !forward;
  out.ends = name.contains("irfft") || name == "_fft_c2r"  ? Ends::ToReal
             : name.contains("rfft") || name == "_fft_r2c" ? Ends::FromReal
                                                           : Ends::Complex;
  out.power = power_of(site, out.inverse);
  return out;
}

struct Array {
  Dims dims;
  std::vector<Complex> cells;
};

// Along one dimension: lines are cut or filled up to `length`, transformed, and `kept` of them
// stay. `mirrors`: the second half of a line is the conjugate of the first.
void along(Array &array, unsigned d, int64_t length, int64_t kept, double sign, bool mirrors) {
  Lines from(array.dims, d);
  array.dims[d] = kept;
  Lines to(array.dims, d);
  std::vector<Complex> out(static_cast<size_t>(count(array.dims)));
  for (int64_t o = 0; o < from.outer; ++o)
    for (int64_t i = 0; i < from.inner; ++i) {
      std::vector<Complex> line(static_cast<size_t>(length));
      for (int64_t x = 0; x < length; ++x) {
        bool second = mirrors && x > length / 2;
        int64_t at = second ? length - x : x;
        if (at >= from.extent)
          continue;
        Complex cell = array.cells[static_cast<size_t>(from.at(o, at, i))];
        line[static_cast<size_t>(x)] = second ? std::conj(cell) : cell;
      }
      transform(line, sign);
      for (int64_t x = 0; x < kept; ++x)
        out[static_cast<size_t>(to.at(o, x, i))] = line[static_cast<size_t>(x)];
    }
  array.cells = std::move(out);
}

Error fft(const Call<Complex> &call) {
  View<const Complex> a = call.operand("a");
  View<Complex> to = call.results[0];
  std::optional<Fourier> fourier = fourier_of(call.site, a.rank());
  if (!fourier || to.rank() != a.rank())
    return cannot_run(call.site, "this transform is not known");
  Array array{*a.dims, {a.data, a.data + a.size()}};
  double sign = fourier->inverse ? 1 : -1, elements = 1;
  for (size_t k = 0; k < fourier->dims.size(); ++k) {
    // The real end is the last of a forward transform to be left, the last of an inverse one to be
    // reached.
    bool from_real = fourier->ends == Ends::FromReal;
    unsigned d = fourier->dims[from_real ? fourier->dims.size() - 1 - k : k];
    bool real_end = fourier->ends != Ends::Complex && d == fourier->dims.back();
    int64_t length = to.dim(d);
    if (real_end && from_real)
      length = static_cast<int64_t>(call.site.number_attr("n", static_cast<double>(a.dim(d))));
    if (std::optional<rules::Numbers> lengths = rules::numbers_attr(call.site.app, {"fft_lengths"});
        real_end && from_real && lengths)
      length = lengths->back();
    elements *= static_cast<double>(length);
    along(array, d, length, to.dim(d), sign, real_end && !from_real);
  }
  double scale = std::pow(elements, -fourier->power);
  for (size_t i = 0; i < array.cells.size(); ++i)
    to.data[i] = array.cells[i] * scale;
  return Error::success();
}

constexpr KernelDef kFourier[] = {
    {.row = "fft_fft", .complex = fft},  {.row = "fft_ifft", .complex = fft},
    {.row = "fft_rfft", .complex = fft}, {.row = "fft_irfft", .complex = fft},
    {.row = "fft_fftn", .complex = fft},
};

} // namespace

llvm::ArrayRef<KernelDef> fourier_kernels() { return kFourier; }

} // namespace spmd::runtime
