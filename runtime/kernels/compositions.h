// Kernels as devices compute them (KernelDef::composed).
#pragma once

namespace spmd::runtime {

class Composition;

bool composed_softmax(Composition &of);          // log_softmax, softmin
bool composed_softmax_backward(Composition &of); // log_softmax_backward
bool composed_layer_norm(Composition &of);       // rms_norm
bool composed_layer_norm_backward(Composition &of);
bool composed_extreme(Composition &of); // amax, amin
bool composed_sum_squares(Composition &of);
bool composed_logsumexp(Composition &of);

} // namespace spmd::runtime
