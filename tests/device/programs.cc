// Programs give on devices what they give on the cpu backend.
#include "tests/device/threads.h"

#include "runtime/judge/bounds.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

namespace {

// What steps of models are made of.
constexpr const char *kSteps[] = {
    R"(
mesh m { tp = 2 }
%x = input bf16[6, 32] I
%h = input f16[6, 32] I
%w = input bf16[32, 16] I
%u = input f16[32, 16] I
%b = input bf16[16] I
%c = input f16[6, 16] I
%y = addmm %b, %x, %w { alpha = 0.5, beta = 2 }
%z = addmm %c, %h, %u
output %y
output %z
)",
    R"(
mesh m { tp = 2 }
%q = input bf16[2, 6@tp, 5, 8] V
%k = input bf16[2, 2@tp, 5, 8] V
%v = input bf16[2, 2@tp, 5, 4] V
%a = attention_grouped_causal %q, %k, %v
output %a
)",
    R"(
mesh m { tp = 2 }
%q = input bf16[2, 4@tp, 5, 8] V
%k = input bf16[2, 4@tp, 5, 8] V
%v = input bf16[2, 4@tp, 5, 4] V
%g = input bf16[2, 4@tp, 5, 4] V
%o, %l = attention_fused %q, %k, %v { is_causal = true }
%a, %b, %c = attention_backward %g, %v, %q, %k, %l, %o { is_causal = true }
output %o
output %a
output %b
output %c
)",
    R"(
mesh m { tp = 2 }
%q = input f32[2, 3, 5, 4] I
%k = input f32[2, 3, 6, 4] I
%v = input f32[2, 3, 6, 4] I
%b = input f32[2, 1, 5, 6] I
%z = zeros_like %b
%m = gt %b, %z
%a = attention %q, %k, %v, %b
%c = attention %q, %k, %v, %m
%d = add %a, %c
output %d
)",
    R"(
mesh m { tp = 2 }
%x = input f32[7, 5] I
%w = input bf16[5, 4] I
%v, %i = topk %x { k = 2, dim = 1 }
%e = embedding %w, %i
%g = embedding_dense_backward %e, %i { num_weights = 5, padding_idx = -1 }
%y, %t = max.dim %x { dim = 1 }
%l = cross_entropy %x, %t { reduction = mean }
%d = cross_entropy_backward %l, %x, %t
output %g
output %l
output %d
)",
    R"(
mesh m { tp = 2 }
%x = input f32[8, 8] I
%v, %i = topk %x { k = 2, dim = 1 }
%g = gather %x, %i { dim = 1 }
%s, %j = sort %x { dim = 0, descending = true }
%h = scatter_add %x, %i, %g { dim = 1 }
%y, %n = max.dim %h { dim = 1 }
%a = index_add %h, %n, %x { dim = 0 }
output %v
output %i
output %s
output %j
output %y
output %a
)",
    R"(
mesh m { tp = 2 }
%x = input f32[4, 3, 2] I
%y = input f32[3, 2] I
%a = view_as_complex %x
%b = view_as_complex %y
%c = mul %a, %b
%d = conj %c
%e = mul %d, %c
%f = add %e, %d
%r = view_as_real %f
output %r
)",
    // Experts of 0, 1, 2 and 3 rows.
    R"(
mesh m { ep = 2 }
%x = input f32[6, 4] I
%w = input f32[4, 4, 5] I
%n = arange { end = 4, dtype = i64 }
%o = cumsum %n { dim = 0 }
%y = grouped_mm %x, %w, %o
%r = jax.lax.ragged_dot %x, %w, %n
%a = vjp.grouped_mm.x %r, %x, %w, %o
%b = vjp.jax.lax.ragged_dot.w %y, %x, %w, %n
%d, %e = grouped_mm_backward %y, %w, %o, %x
%c = cumsum %y { dim = 1 }
%h = vjp.cumsum.a %r, %c { dim = 1 }
%t = transpose %x { dim0 = 0, dim1 = 1 }
%u = grouped_mm_of_rows %t, %c, %o
%i = vjp.grouped_mm_of_rows.x %u, %t, %c, %o
%j = vjp.grouped_mm_of_rows.w %u, %t, %c, %o
%p = cumprod %u { dim = 2, reverse = true }
output %a
output %b
output %d
output %e
output %h
output %i
output %j
output %p
)",
};

} // namespace

TEST_CASE("device: attention, losses, indices, experts and complex numbers need no host") {
  for (const char *text : kSteps) {
    Totals totals;
    INFO(text);
    CHECK(difference(text, totals) == "");
    CHECK(totals.programs == 1);
    for (const auto &[op, count] : totals.host_ops)
      FAIL_CHECK(count << " " << op << " on the host");
  }
}

TEST_CASE("device: what the test programs compute is what they compute on the cpu backend") {
  Totals totals;
  for (const std::string &path : case_files()) {
    std::string found = difference(text_of(path), totals);
    if (!found.empty())
      FAIL_CHECK(path << ": " << found);
  }
  std::string on_host;
  for (const auto &[op, count] : totals.host_ops)
    on_host += fmt::format(" {} {}", count, op);
  WARN(totals.programs << " programs; " << totals.device_steps << " steps on devices, "
                       << totals.host_steps << " computed on the host:" << on_host);
  WARN(fmt::format("{} commands that move {} bytes become {} that move {}", totals.commands[0],
                   totals.bytes[0], totals.commands[1], totals.bytes[1]));
  CHECK(totals.programs > 50);
  CHECK(totals.device_steps > 10 * totals.host_steps);
  CHECK(totals.commands[1] < totals.commands[0]);
  CHECK(totals.bytes[1] < totals.bytes[0]);
}
