// Optimizer steps of one parameter, as torch's fused kernels take them, and loss scaling.
#include "runtime/kernels/positions.h"
#include "runtime/kernels/rows.h"

namespace spmd::runtime {

namespace {

using llvm::Error;
using Real = View<const double>;

// State that a framework passes in a place that the row leaves out.
bool passes(const Call<double> &call, llvm::StringRef name, unsigned position) {
  for (const rules::Slot &slot : call.context.app.slots) {
    bool here =
        slot.name.valid() ? call.context.app.program.strings[slot.name] == name : position-- == 0;
    if (here && (slot.form == rules::Slot::Form::Tensor || slot.count))
      return true;
  }
  return false;
}

// What the fused kernels do with their gradients before anything else.
Error refused(const Call<double> &call) {
  for (llvm::StringRef name : {"grad_scale", "found_inf"})
    if (passes(call, name, ~0u))
      return cannot_run(call.context, "`" + name + "` is no operand of the row");
  return Error::success();
}

struct Rates {
  double lr, decay, eps, sign;
};
Rates rates_of(const KernelContext &context, double lr, double eps) {
  return {context.number_attr("lr", context.number_attr("learning_rate", lr)),
          context.number_attr("weight_decay", 0), context.number_attr("eps", eps),
          rules::flag_attr(context.app, "maximize") ? -1.0 : 1.0};
}

std::pair<double, double> betas(const KernelContext &context) {
  std::pair<double, double> out{context.number_attr("beta1", 0.9),
                                context.number_attr("beta2", 0.999)};
  const ir::AttrValue *both = rules::any_attr(context.app, {"betas"});
  if (!both || both->form != ir::AttrForm::List)
    return out;
  llvm::ArrayRef<ir::AttrValue> items = context.app.program.lists[both->as<ir::AttrListId>()].items;
  if (items.size() == 2)
    out = {number_of(items[0]).value_or(out.first), number_of(items[1]).value_or(out.second)};
  return out;
}

// Results in the order of the row; null ones are not asked for.
double *result(const Call<double> &call, unsigned i) {
  return i < call.results.size() && call.results[i] ? call.results[i].data : nullptr;
}
void store(double *to, int64_t at, double value) {
  if (to)
    to[at] = value;
}

Error adam(const Call<double> &call) {
  const KernelContext &context = call.context;
  Real p = call.operand("p"), g = call.operand("g"), m = call.operand("m"), v = call.operand("v"),
       n = call.operand("n");
  bool fused = context.row.equation.equation.result_count == 4;
  if (Error wrong = refused(call))
    return wrong;
  if (rules::flag_attr(context.app, "amsgrad"))
    return cannot_run(context, "the largest second moments of `amsgrad` are no operand of the row");
  Rates rates = rates_of(context, 1e-3, 1e-8);
  auto [beta1, beta2] = betas(context);
  bool decoupled = context.variant() == Variant::DecoupledDecay ||
                   rules::flag_attr(context.app, "decoupled") ||
                   rules::flag_attr(context.app, "decoupled_weight_decay");
  double step = n ? n[0] : context.number_attr("step", 1);
  double first = 1 - std::pow(beta1, step), second = 1 - std::pow(beta2, step);
  unsigned later = fused ? 1 : 0; // the fused form writes the gradient between
  double *p_to = result(call, 0), *g_to = fused ? result(call, 1) : nullptr,
         *m_to = result(call, 1 + later), *v_to = result(call, 2 + later);
  for (int64_t i = 0; i < p.size(); ++i) {
    double grad = rates.sign * g[i] + (decoupled ? 0 : rates.decay * p[i]);
    double weight = decoupled ? p[i] * (1 - rates.lr * rates.decay) : p[i];
    double mean = beta1 * m[i] + (1 - beta1) * grad;
    double square = beta2 * v[i] + (1 - beta2) * grad * grad;
    double spread = std::sqrt(square) / std::sqrt(second) + rates.eps;
    store(p_to, i, weight - rates.lr / first * mean / spread);
    store(g_to, i, g[i]);
    store(m_to, i, mean);
    store(v_to, i, square);
  }
  return Error::success();
}

Error sgd(const Call<double> &call) {
  const KernelContext &context = call.context;
  Real p = call.operand("p"), g = call.operand("g"), m = call.operand("m");
  if (Error wrong = refused(call))
    return wrong;
  Rates rates = rates_of(context, 1e-3, 0);
  double momentum = context.number_attr("momentum", 0);
  double kept =
      rules::flag_attr(context.app, "is_first_step") ? 1 : 1 - context.number_attr("dampening", 0);
  bool nesterov = rules::flag_attr(context.app, "nesterov");
  if (momentum != 0 && !m)
    return cannot_run(context, "its momentum is not given");
  for (int64_t i = 0; i < p.size(); ++i) {
    double grad = rates.sign * g[i] + rates.decay * p[i];
    double buffer = momentum == 0 ? (m ? m[i] : 0)
                    : rules::flag_attr(context.app, "is_first_step")
                        ? grad
                        : momentum * m[i] + kept * grad;
    double way = momentum == 0 ? grad : nesterov ? grad + momentum * buffer : buffer;
    store(result(call, 0), i, p[i] - rates.lr * way);
    store(result(call, 1), i, buffer);
  }
  return Error::success();
}

Error adagrad(const Call<double> &call) {
  const KernelContext &context = call.context;
  Real p = call.operand("p"), g = call.operand("g"), v = call.operand("v");
  if (Error wrong = refused(call))
    return wrong;
  Rates rates = rates_of(context, 1e-2, 1e-10);
  double slowing = context.number_attr("lr_decay", 0);
  if (slowing != 0 && !context.app.attr("step"))
    return cannot_run(context, "the number of its step is no operand of the row");
  double rate = rates.lr / (1 + (context.number_attr("step", 1) - 1) * slowing);
  for (int64_t i = 0; i < p.size(); ++i) {
    double grad = rates.sign * g[i] + rates.decay * p[i];
    double square = v[i] + grad * grad;
    store(result(call, 0), i, p[i] - rate * grad / (std::sqrt(square) + rates.eps));
    store(result(call, 1), i, square);
  }
  return Error::success();
}

// torch passes the inverse of the scale.
Error unscale_check(const Call<double> &call) {
  Real g = call.operand("g"), s = call.operand("s");
  std::optional<double> number = call.context.number(call.context.operand("s"));
  double scale = s ? s[0] : number.value_or(1);
  double factor = call.context.app.op.alias ? scale : 1 / scale;
  bool infinite = false;
  for (int64_t i = 0; i < g.size(); ++i) {
    infinite |= !std::isfinite(g[i]);
    store(result(call, 0), i, g[i] * factor);
  }
  store(result(call, 1), 0, infinite);
  return Error::success();
}

Error update_scale(const Call<double> &call) {
  const KernelContext &context = call.context;
  Real s = call.operand("s"), n = call.operand("n"), k = call.operand("k");
  auto number = [&](Real tensor, std::string_view name) {
    return tensor ? tensor[0] : context.number(context.operand(name)).value_or(0);
  };
  double growth =
      context.number_attr("scale_growth_factor", context.number_attr("growth_factor", 2));
  double backoff =
      context.number_attr("scale_backoff_factor", context.number_attr("backoff_factor", 0.5));
  double interval = context.number_attr("growth_interval", 2000);
  double scale = number(s, "s"), fine = number(k, "k") + 1;
  if (number(n, "n") != 0) {
    scale *= backoff, fine = 0;
  } else if (fine == interval) {
    double more = static_cast<float>(scale * growth);
    scale = std::isfinite(more) ? more : scale, fine = 0;
  }
  store(result(call, 0), 0, scale);
  store(result(call, 1), 0, fine);
  return Error::success();
}

constexpr KernelDef kOptimizer[] = {
    {.row = "adam_step", .real = adam},
    {.row = "fused_adam", .real = adam},
    {.row = "sgd_step", .real = sgd},
    {.row = "adagrad_step", .real = adagrad},
    {.row = "unscale_check", .real = unscale_check},
    {.row = "update_scale", .real = update_scale},
};

} // namespace

llvm::ArrayRef<KernelDef> optimizer_kernels() { return kOptimizer; }

} // namespace spmd::runtime
