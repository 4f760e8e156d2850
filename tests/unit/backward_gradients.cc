// Derived backwards against differences: of each program the gradients that its backward gives, on
// one device and in double precision, are those that the loss has when a parameter is moved a
// little.
#include "runtime/reference/run.h"

#include "checker/backward/backward.h"
#include "ir/input/input.h"
#include "tests/unit/catch.h"

#include <cmath>
#include <random>

using namespace spmd;

namespace {

struct Case {
  const char *what;
  const char *text; // ends in a loss %l; gradients are %g and a name
};

constexpr Case kCases[] = {
    {"products, activations and a softmax across a tensor-parallel pair", R"(
mesh m { dp = 2, tp = 2 }
%x = input f64[2@dp, 4] R@tp
%w = param f64[4, 6@tp] R@dp
%v = param f64[6@tp, 4] R@dp
%b = param f64[4] R
%h = matmul %x, %w
%a = gelu %h
%y = matmul %a, %v { partial = tp }
%z = all_reduce %y { axis = tp, src = P, dst = R }
%o = add %z, %b
%n = softmax %o { dim = 1 }
%s = mul %n, %o
%q = sum %s { partial = dp }
%r = all_reduce %q { axis = dp, src = P, dst = I }
%l = convert %r { axis = tp, src = R, dst = I, expert = true }
backward %l
%gw = grad %w
%gv = grad %v
%gb = grad %b
)"},
    {"a mean over shards, whose scale the gradients carry", R"(
mesh m { dp = 2 }
%x = input f64[3@dp, 4]
%w = param f64[4] R
%y = mul %x, %w
%e = tanh %y
%q = mean %e { partial = dp }
%l = all_reduce %q { axis = dp, src = P, dst = I, op = avg }
backward %l
%gw = grad %w
)"},
    {"views, slices and joins", R"(
mesh m { tp = 2 }
%w = param f64[2, 6@tp] I
%v = param f64[3, 4] I@tp
%a = reshape %v { shape = [2, 6] }
%b = permute_dims %a { dims = [1, 0] }
%c = slice %b { dim = 0, start = 1, end = 5 }
%d = cat [%c, %b] { dim = 0 }
%e = flip %d { dims = [0] }
%f = expand %e { size = [3, 10, 2] }
%k, %m = split %f { dim = 1, sizes = [4, 6] }
%n = exp %m
%p = constant_pad %n { pad = [1, 0] }
%q = sum %p
%r = sum %k
%s = mul %q, %r
%l = sin %s
backward %l
%gv = grad %v
)"},
    {"rows by index, a loss over classes", R"(
mesh m { tp = 2 }
%i = input i64[5] I
%t = input i64[5] I
%w = param f64[7, 4] I
%u = param f64[4, 6] I
%e = embedding %w, %i
%h = layer_norm %e { normalized_shape = [4] }
%z = matmul %h, %u
%l = cross_entropy %z, %t { reduction = mean }
backward %l
%gw = grad %w
%gu = grad %u
)"},
    {"attention and a normalisation", R"(
mesh m { tp = 2 }
%q = param f64[2, 4@tp, 3, 5]
%k = param f64[2, 4@tp, 3, 5]
%v = param f64[2, 4@tp, 3, 5]
%w = param f64[5] R
%a = attention %q, %k, %v
%n = rms_norm %a, %w { normalized_shape = [5], eps = 1e-5 }
%s = silu %n
%p = sum %s { partial = tp }
%l = all_reduce %p { axis = tp, src = P, dst = I }
backward %l
%gq = grad %q
%gk = grad %k
%gv = grad %v
%gw = grad %w
)"},
    {"a scan, a branch and a call", R"(
mesh m { tp = 2 }
func @cell(%w: f64[3, 3], %h: f64[2, 3], %x: f64[2, 3]) {
  %a = matmul %h, %w
  %n = tanh %a
  %m = add %n, %x
  return %m, %n
}
func @twice(%y: f64[2, 3]) {
  %z = add %y, %y
  return %z
}
func @minus(%y: f64[2, 3]) {
  %z = neg %y
  return %z
}
%w = param f64[3, 3] I
%h = param f64[2, 3] I
%x = param f64[4, 2, 3] I
%a, %b = scan %w, %h, %x { consts = 1, carry = 1, body = @cell }
%i = sum %h
%c = gt %i, 0.0
%d = cond %c, %a { then = @twice, else = @minus }
%e = call %d { body = @twice }
%s = sum %e
%f = mul %b, %b
%t = sum %f
%l = add %s, %t
backward %l
%gw = grad %w
%gh = grad %h
%gx = grad %x
)"},
    {"lists that differ between ranks", R"(
trace { mode = local }
mesh m { dp = 2, tp = 2 }
%x = input f64[3, 4] V@dp I@tp
%w = param f64[4, 4] R@dp V@tp
%v = param f64[4, 4] R@dp V@tp
%c = convert %x { axis = tp, src = I, dst = R }
%u = linear %c, %w
%g = gelu %u
%y = linear %g, %v { partial = tp }
%z = all_reduce %y { axis = tp, src = P, dst = I }
%n = rms_norm %z { normalized_shape = [4], eps = 1e-5 }
%k = mul %n, %z
%s = sum %k
%r = reinterpret %s { axis = dp, src = V, dst = P }
%l = all_reduce %r { axis = dp, src = P, dst = I }
backward %l
%gw = grad %w
%gv = grad %v
)"},
    {"shards that move: gathers, scatters, exchanges, uneven ones among them", R"(
mesh m { a = 2, b = 3 }
%w = param f64[6@a, 4] of [11, 4] R@b
%v = param f64[11, 2@b] of [11, 5] R@a
%u = param f64[6, 2@b] R@a
%g = all_gather %w { axis = a, src = S(0), dst = R }
%e = exp %g
%t = permute_dims %e { dims = [1, 0] }
%y = matmul %t, %v
%x = all_to_all %u { axis = b, src = S(1), dst = S(0) }
%s = sin %x
%p = sum %s { partial = b }
%q = sum %y { partial = b }
%z = add %p, %q
%r = all_reduce %z { axis = b, src = P, dst = I }
%l = convert %r { axis = a, src = R, dst = I, expert = true }
backward %l
%gw = grad %w
%gv = grad %v
%gu = grad %u
)"},
    {"a dropout, which draws the same again", R"(
mesh m { tp = 2 }
%x = param f64[3@tp, 5]
%w = param f64[5] R
%y = mul %x, %w
%d = dropout %y { p = 0.5 }
%e = exp %d
%s = sum %e { partial = tp }
%l = all_reduce %s { axis = tp, src = P, dst = I }
backward %l
%gx = grad %x
%gw = grad %w
)"},
    {"regions that are local, with a body and without", R"(
mesh m { dp = 2, tp = 2 }
func @inner(%x: f64[4, 3], %w: f64[3]) {
  %y = mul %x, %w
  %z = exp %y
  return %z
}
%x = param f64[4@dp, 3@tp]
%w = param f64[3@tp] R@dp
%v = param f64[4, 6] R
%a = local_map %x, %w { axis = (dp, tp), body = @inner, out_types = [f64[4@dp, 3@tp]] }
local(tp) {
  %b = sin %a
  %c: f64[4@dp, 3@tp] = mul %b, %b
}
%s = sum %c { partial = (dp, tp) }
%r = all_reduce %s { axis = (dp, tp), src = P, dst = I }
%t = sum %v
%u = convert %t { axis = (dp, tp), src = R, dst = I, expert = true }
%l = add %r, %u
backward %l
%gx = grad %x
%gw = grad %w
%gv = grad %v
)"},
    {"several uses, operands that are stretched, written in place", R"(
mesh m { tp = 2 }
%w = param f64[3, 1] I
%v = param f64[4] I
%y = mul %w, %v
%z aliases %y = add_ mut %y, %w
%d = div %z, %v
%n = einsum [%d, %d] { equation = "ij,kj->ik" }
%m = maximum %n, 0.3
%s = sum %m
%t = square %s
%l = add %t, %s
backward %l
%gw = grad %w
%gv = grad %v
)"},
    {"collectives over axes of size 1, which stack and cut all the same", R"(
mesh m { dp = 1, tp = 2 }
%w = param f64[4, 2@tp] R@dp
%v = param f64[4] R@dp I@tp
%y = all_gather %w { axis = tp, src = S(1), dst = I }
%q = mul %y, %v
%m = mean %q { dim = [0, 1], partial = dp }
%l = all_reduce %m { axis = dp, op = avg, dst = I }
backward %l
%gw = grad %w
%gv = grad %v
)"},
};

ir::Program read(const char *text) {
  ir::ReadResult read = ir::read_text(text);
  for (const ir::InputError &error : read.errors)
    FAIL(error.message);
  return std::move(read.program);
}

ir::ValueId named(const ir::Program &program, llvm::StringRef name) {
  for (uint32_t i = 0; i < program.values.size(); ++i)
    if (ir::print(program.values[ir::ValueId{i}].name, program.strings) == ("%" + name).str())
      return ir::ValueId{i};
  return {};
}

template <class T> T must(llvm::Expected<T> made) {
  if (!made)
    FAIL(llvm::toString(made.takeError()));
  return std::move(*made);
}

class GradientCheck {
public:
  explicit GradientCheck(checker::CheckedProgram &program)
      : checked_(program), program_(program.program()),
        reference_(program, runtime::Domain::F64, 1) {
    std::mt19937 random(7);
    for (const ir::Param &param : program_.params)
      params_.push_back(draw(param.value, random));
  }

  void check(size_t param, ir::ValueId gradient) {
    std::mt19937 random(11 + static_cast<unsigned>(param));
    const runtime::Meaning at = params_[param];
    runtime::Meaning along = draw(program_.params[param].value, random);
    runtime::ReferenceRun run(reference_);
    start(run);
    const runtime::Meaning *found = run.find(gradient);
    REQUIRE(found);
    double slope = 0;
    for (size_t p = 0; p < along.pieces.size(); ++p) {
      REQUIRE(found->pieces.size() == along.pieces.size());
      REQUIRE(found->pieces[p].dims == along.pieces[p].dims);
      const auto &g = found->pieces[p].of<double>(), &v = along.pieces[p].of<double>();
      for (size_t i = 0; i < g.size(); ++i)
        slope += g[i] * v[i];
    }
    const double h = 6e-6;
    double change = (loss(param, at, along, h) - loss(param, at, along, -h)) / (2 * h);
    params_[param] = at;
    CHECK(std::abs(slope - change) <= 1e-7 * std::max(1.0, std::abs(change)));
    CHECK(std::abs(change) > 1e-9); // else nothing was compared
  }

private:
  runtime::Meaning draw(ir::ValueId value, std::mt19937 &random) {
    auto known = must(runtime::distribution_of(program_, checked_.known(value)));
    REQUIRE(known);
    std::uniform_real_distribution<double> real(-1, 1);
    runtime::Meaning made;
    made.per_rank = known->per_rank_axes();
    for (int64_t p = 0; p < known->per_rank_grid().size(); ++p) {
      made.pieces.push_back(
          runtime::Tensor::make(known->dtype(), known->whole(), runtime::Domain::F64));
      for (double &cell : made.pieces.back().of<double>())
        cell = known->dtype() == ir::DType::I64 ? static_cast<double>(random() % 5) : real(random);
    }
    return made;
  }
  void start(runtime::ReferenceRun &run) {
    if (llvm::Error failed = run.run(params_))
      FAIL(llvm::toString(std::move(failed)));
  }
  double loss(size_t param, const runtime::Meaning &at, const runtime::Meaning &along, double h) {
    params_[param] = at;
    for (size_t p = 0; p < at.pieces.size(); ++p)
      for (size_t i = 0; i < at.pieces[p].of<double>().size(); ++i)
        params_[param].pieces[p].of<double>()[i] += h * along.pieces[p].of<double>()[i];
    runtime::ReferenceRun run(reference_);
    start(run);
    const runtime::Meaning *made = run.find(named(program_, "l"));
    REQUIRE(made);
    return made->pieces[0].of<double>()[0];
  }

  checker::CheckedProgram &checked_;
  const ir::Program &program_;
  runtime::Reference reference_;
  runtime::Meanings params_;
};

} // namespace

TEST_CASE("a derived backward gives the slope of the loss") {
  for (const Case &each : kCases)
    DYNAMIC_SECTION(each.what) {
      ir::Program program = read(each.text);
      std::optional<checker::NoBackward> none = checker::derive_backward(program);
      INFO((none ? none->message : std::string()));
      REQUIRE(!none);
      std::optional<checker::CheckedProgram> checked = checker::check_and_lower(std::move(program));
      REQUIRE(checked);
      GradientCheck check(*checked);
      const ir::Program &derived = checked->program();
      for (size_t p = 0; p < derived.params.size(); ++p) {
        std::string name =
            ir::print(derived.values[derived.params[p].value].name, derived.strings).substr(1);
        INFO(name);
        if (ir::ValueId gradient = named(derived, "g" + name); gradient.valid())
          check.check(p, gradient);
      }
    }
}
