// Copies to and from the host wait for everything that was queued.
#include "runtime/device/buffers.h"

#include "runtime/tensor/element_bytes.h"

namespace spmd::runtime {

void DeviceBuffers::clear() {
  filled_.assign(lowered_.plan().buffers.size(), false);
  pending_.clear();
}

void DeviceBuffers::note_done(const Step &step) {
  if (!lowered_.takes_part(step))
    return;
  switch (step.form) {
  case StepForm::Compute:
    for (const Use &use : lowered_.plan().used(lowered_.plan().computes[step.index].results))
      filled_[use.buffer.index] = true;
    break;
  case StepForm::LocalStep:
    filled_[lowered_.plan().local_steps[step.index].result.index] = true;
    break;
  case StepForm::Communicate:
    filled_[lowered_.plan().communicates[step.index].result.index] = true;
    break;
  case StepForm::Release:
    filled_[lowered_.plan().releases[step.index].buffer.index] = false;
    break;
  case StepForm::Branch:
  case StepForm::Loop:
    break;
  }
}

llvm::Error DeviceBuffers::store(BufferId buffer, const Tensor &host) {
  std::string bytes = pack_elements(host);
  filled_[buffer.index] = true;
  return link_.ask(link_.plugin().put, lowered_.address(buffer),
                   static_cast<const void *>(bytes.data()), static_cast<uint64_t>(bytes.size()));
}

llvm::Error DeviceBuffers::fetch(BufferId from, Tensor &host) {
  const Buffer &buffer = lowered_.plan().buffers[from];
  host = Tensor::make(buffer.dtype, buffer.on(lowered_.rank()), Domain::Declared);
  std::string bytes(lowered_.bytes_of(from), '\0');
  pending_.clear(); // a copy to the host waits for everything
  if (llvm::Error error = link_.ask(link_.plugin().get, static_cast<void *>(bytes.data()),
                                    lowered_.address(from), static_cast<uint64_t>(bytes.size())))
    return error;
  return unpack_elements(bytes, host);
}

llvm::Error DeviceBuffers::wait_for(BufferId buffer) {
  if (!pending_.meet(lowered_.plan().buffers[buffer]))
    return llvm::Error::success();
  pending_.clear();
  return link_.ask(link_.plugin().follow, uint32_t(kSpmdCompute), uint32_t(kSpmdCollectives));
}
llvm::Error DeviceBuffers::wait_for(llvm::ArrayRef<Use> uses) {
  for (const Use &use : uses)
    if (llvm::Error error = wait_for(use.buffer))
      return error;
  return llvm::Error::success();
}

} // namespace spmd::runtime
