// Products of matrices: elements, layouts, batches and sizes, held against sums in double and what
// rounding may do.
#include "tests/gpu/opened_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace spmd::gpu_test {
namespace {

// How a sum of products is rounded at most, step by step. Tensor cores cut where a processor
// rounds, and of eight bits they keep fewer between steps.
double step_of(uint32_t element) {
  switch (element) {
  case kSpmdF64:
    return std::ldexp(1.0, -53);
  case kSpmdF8E4M3:
  case kSpmdF8E5M2:
    return std::ldexp(1.0, -13);
  case kSpmdF32:
    return std::ldexp(1.0, -24);
  default:
    return std::ldexp(1.0, -22);
  }
}
double rounding_of(uint32_t element) {
  switch (element) {
  case kSpmdF8E4M3:
    return std::ldexp(1.0, -4);
  case kSpmdF8E5M2:
    return std::ldexp(1.0, -3);
  case kSpmdBF16:
    return std::ldexp(1.0, -8);
  case kSpmdF16:
    return std::ldexp(1.0, -11);
  case kSpmdF32:
    return std::ldexp(1.0, -24);
  default:
    return std::ldexp(1.0, -53);
  }
}

// The least number above 0.
double least_of(uint32_t element) {
  switch (element) {
  case kSpmdF8E4M3:
    return std::ldexp(1.0, -9);
  case kSpmdF8E5M2:
    return std::ldexp(1.0, -16);
  case kSpmdF16:
    return std::ldexp(1.0, -24);
  default:
    return std::ldexp(1.0, -126); // as if devices had none that is smaller
  }
}

struct Form {
  uint32_t element, out_element;
  int64_t rows, columns, inner, batch;
  uint32_t layout; // bits: a, b, out by column
  bool adds;
  int64_t gap;     // elements between the rows or columns of a layout
  int64_t scatter; // 2: no stride is 1
};

// The strides of one matrix after another; returns how many elements there are.
int64_t lay_out(int64_t rows, int64_t columns, int64_t batch, bool by_column, const Form &form,
                int64_t &row_stride, int64_t &column_stride, int64_t &batch_stride) {
  const int64_t length = (by_column ? rows : columns) * form.scatter + form.gap;
  (by_column ? row_stride : column_stride) = form.scatter;
  (by_column ? column_stride : row_stride) = length;
  batch_stride = length * (by_column ? columns : rows);
  return std::max<int64_t>(batch_stride * batch, 1);
}

std::vector<double> numbers_of(Elements &elements) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < elements.count; ++i)
    numbers.push_back(elements.at(i));
  return numbers;
}

// The worst error over what rounding may do, or more than 1 with the place in `text`.
double worst_ratio(OpenedDevice &on, const SpmdMatrices &m, Elements &a, Elements &b, Elements &out,
                   const std::vector<char> &got, std::string &text) {
  double worst = 0;
  const std::vector<double> left = numbers_of(a), right = numbers_of(b);
  const auto found_at = reinterpret_cast<SpmdAddress>(got.data());
  for (int64_t batch = 0; batch < m.batch; ++batch)
    for (int64_t row = 0; row < m.rows; ++row)
      for (int64_t column = 0; column < m.columns; ++column) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < m.inner; ++i) {
          const double term =
              left[static_cast<size_t>(batch * m.a_batch + row * m.a_row + i * m.a_inner)] *
              right[static_cast<size_t>(batch * m.b_batch + i * m.b_inner + column * m.b_column)];
          sum += term;
          size += std::fabs(term);
        }
        const int64_t place = batch * m.out_batch + row * m.out_row + column * m.out_column;
        double wanted = m.factor * sum;
        size *= std::fabs(m.factor);
        const double rounded_before = m.adds ? rounding_of(m.out_element) * std::fabs(wanted) : 0;
        if (m.adds) {
          wanted += out.at(place);
          size += std::fabs(out.at(place));
        }
        const double found = device::load(found_at, out.element, place);
        out.set(place, found); // so that what lies between can be compared
        const double steps = static_cast<double>(m.inner + 3) * step_of(m.element);
        const double bound =
            steps * size + 1.01 * rounding_of(m.out_element) * (std::fabs(wanted) + steps * size) +
            1.01 * rounded_before + least_of(m.out_element);
        const double ratio = found == wanted ? 0 : std::fabs(found - wanted) / bound;
        if (!(ratio <= worst)) {
          worst = ratio == ratio ? ratio : INFINITY;
          text = "batch " + std::to_string(batch) + ", row " + std::to_string(row) + ", column " +
                 std::to_string(column) + " is " + std::to_string(found) + ", expected " +
                 std::to_string(wanted);
        }
      }
  on.expect(worst <= 1, text);
  return worst;
}

double test_product(OpenedDevice &on, const Form &form) {
  SpmdMatrices m{};
  m.element = form.element;
  m.out_element = form.out_element;
  m.adds = form.adds;
  m.batch = form.batch;
  m.rows = form.rows;
  m.columns = form.columns;
  m.inner = form.inner;
  m.factor = 0.75;
  const int64_t a_count =
      lay_out(m.rows, m.inner, m.batch, form.layout & 1, form, m.a_row, m.a_inner, m.a_batch);
  const int64_t b_count =
      lay_out(m.inner, m.columns, m.batch, form.layout & 2, form, m.b_inner, m.b_column, m.b_batch);
  const int64_t out_count = lay_out(m.rows, m.columns, m.batch, form.layout & 4, form, m.out_row,
                                    m.out_column, m.out_batch);
  Elements a = on.elements(form.element, a_count), b = on.elements(form.element, b_count);
  Elements out = on.elements(form.out_element, out_count);
  std::normal_distribution<double> normal;
  for (Elements *array : {&a, &b, &out}) {
    for (int64_t i = 0; i < array->count; ++i)
      array->set(i, normal(on.random));
    on.put(*array);
  }
  m.a = a.device;
  m.b = b.device;
  m.out = out.device;
  on.expect_fine(on.calls().matrices(on.device(), &m), "matrices");
  std::vector<char> got(out.bytes());
  on.expect_fine(on.calls().get(on.device(), got.data(), out.device, got.size()), "get");
  std::string text;
  const double worst = worst_ratio(on, m, a, b, out, got, text);
  // Nothing is written between the positions of the result, nor around them.
  on.expect(on.difference(out).empty(), "beside the result: " + on.difference(out));
  return worst;
}

constexpr std::array<std::array<int64_t, 3>, 7> kSizes = {
    {{48, 32, 64}, {17, 5, 33}, {1, 40, 24}, {40, 1, 24}, {16, 16, 1}, {1, 1, 300}, {64, 48, 320}}};

void test_elements(OpenedDevice &on, uint32_t element, uint32_t out) {
  double worst = 0;
  for (auto [rows, columns, inner] : kSizes)
    for (uint32_t layout = 0; layout < 8; ++layout)
      for (int64_t batch : {1, 3})
        for (bool adds : {false, true}) {
          Form form{element, out, rows, columns, inner, batch, layout, adds, 0, 1};
          form.gap = layout == 5 ? 16 : 0;
          char name[120];
          std::snprintf(name, sizeof name, "matrices: %u to %u, %dx%dx%d, layout %u, batch %d%s",
                        element, out, static_cast<int>(rows), static_cast<int>(columns),
                        static_cast<int>(inner), layout, static_cast<int>(batch),
                        adds ? ", added" : "");
          on.run(name, [&] { worst = std::max(worst, test_product(on, form)); });
        }
  if (worst > 0)
    std::printf("matrices: %u to %u: at worst %.3f of what rounding may do\n", element, out, worst);
}

} // namespace

void test_matrices(OpenedDevice &on) {
  for (uint32_t element = kSpmdF8E4M3; element <= kSpmdF64; ++element) {
    test_elements(on, element, element);
    if (element < kSpmdF32)
      test_elements(on, element, kSpmdF32);
  }
  test_elements(on, kSpmdBF16, kSpmdF16);
  test_elements(on, kSpmdF32, kSpmdBF16);
  for (uint32_t element : {kSpmdF32, kSpmdBF16})
    on.run("matrices: no stride is 1, element " + std::to_string(element), [&] {
      test_product(on, {element, element, 20, 30, 40, 2, 0, true, 0, 2});
    });
  on.run("matrices: nothing is summed", [&] {
    test_product(on, {kSpmdF32, kSpmdF32, 20, 30, 0, 2, 0, true, 0, 1});
  });
  on.run("matrices: none", [&] {
    test_product(on, {kSpmdF32, kSpmdF32, 20, 0, 30, 2, 0, false, 0, 1});
  });
}

} // namespace spmd::gpu_test
