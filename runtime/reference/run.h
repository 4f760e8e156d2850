// Whole bodies of the reference: calls, loops, branches, storage that is written in place. What was
// computed is kept with how, so that the gradient can be taken of it.
#pragma once

#include "runtime/reference/reference.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <functional>

namespace spmd::runtime {

// One value in one execution of a body.
using NodeId = uint32_t;
inline constexpr NodeId kNoNode = ~0u;

using LinearMap = std::function<llvm::Expected<Meaning>(const Meaning &)>;

// What some nodes were made of: by an instruction, or moved and added up by linear maps, one for
// each input.
struct Entry {
  ir::InstId inst; // none: maps
  BodySite site;
  std::vector<NodeId> inputs, outputs;
  std::vector<LinearMap> maps;
  Rational factor{1, 1}; // by which what is mapped is multiplied
};

struct Trace {
  std::vector<Meaning> nodes; // without pieces: no data
  std::vector<rules::TensorInfo> known;
  std::vector<Entry> entries;
};

// A gradient; without pieces: none flows.
struct Derivative {
  Meaning meaning;
  std::string unknown; // why nothing that we can compute gives it; empty: it is known
};

// The values of one body.
struct Frame {
  BodySite site;
  llvm::DenseMap<uint32_t, NodeId> nodes; // by ValueId

  NodeId find(ir::ValueId value) const {
    auto at = nodes.find(value.index);
    return at == nodes.end() ? kNoNode : at->second;
  }
};

class ReferenceRun {
public:
  explicit ReferenceRun(Reference &reference)
      : reference_(reference), program_(reference.program()), checked_(reference.checked()) {}

  // Values of the main body that nothing but a run knows: results of instructions that take
  // addends.
  void replace_values(const llvm::DenseMap<uint32_t, Meaning> &by_value) { replaced_ = &by_value; }
  // The main body, from what its parameters mean, in the order of Program::params; those without
  // pieces are not known.
  llvm::Error run(Meanings params);
  // One instruction of a body with what its operands mean, which may run bodies.
  llvm::Expected<Meanings> run_inst(ir::InstId id, BodySite site,
                                    llvm::ArrayRef<const Meaning *> operands);
  // `alias`, from what the values of its storage mean: null where that is not known.
  llvm::Expected<Meaning> run_alias(ir::InstId id, BodySite site,
                                    llvm::function_ref<const Meaning *(ir::ValueId)> meaning);
  // Gradients pass this instruction, though it is recorded where none do.
  void differentiate(ir::InstId id) { differentiated_.insert(id.index); }
  // Of the main body; null if it was not computed.
  const Meaning *find(ir::ValueId value) const;
  // The derivative of a loss of the main body with respect to each of these values, as meant;
  // without pieces where none flows. An error where one of them is not known.
  llvm::Expected<Meanings> gradients(ir::ValueId loss, llvm::ArrayRef<ir::ValueId> of);
  // The same, times a gradient of the loss, of the same meshes and extents; null: ones. Each is
  // known or not by itself.
  std::vector<Derivative> derivatives(ir::ValueId loss, const Meaning *seed,
                                      llvm::ArrayRef<ir::ValueId> of);

  const Trace &trace() const { return trace_; }

private:
  llvm::Error body(const ir::Body &body, Frame &frame);
  llvm::Error instruction(ir::InstId id, Frame &frame);
  llvm::Error leaf(ir::InstId id, Frame &frame, llvm::ArrayRef<NodeId> operands);
  llvm::Error receive(ir::ValueId sent, ir::ValueId result, Frame &frame);
  llvm::Error alias(ir::InstId id, Frame &frame);
  llvm::Expected<NodeId> derived(ir::InstId id, BodySite site,
                                 llvm::function_ref<const Meaning *(ir::ValueId)> meaning,
                                 llvm::function_ref<NodeId(ir::ValueId)> node);
  llvm::Expected<std::vector<NodeId>> function(ir::FunctionId id, BodySite site,
                                               llvm::ArrayRef<NodeId> args);
  llvm::Expected<std::vector<NodeId>> control(ir::InstId id, BodySite site,
                                              llvm::ArrayRef<NodeId> operands);
  using Nodes = llvm::Expected<std::vector<NodeId>>;
  Nodes call(ir::InstId id, BodySite site, llvm::ArrayRef<NodeId> operands);
  Nodes scan(ir::InstId id, BodySite site, llvm::ArrayRef<NodeId> operands);
  Nodes cond(ir::InstId id, BodySite site, llvm::ArrayRef<NodeId> operands);
  Nodes loop(ir::InstId id, BodySite site, llvm::ArrayRef<NodeId> operands);

  NodeId add(Meaning meaning, rules::TensorInfo known);
  // A new node by maps from others; the sum of what they give, multiplied by the factor.
  llvm::Expected<NodeId> mapped(std::vector<NodeId> inputs, std::vector<LinearMap> maps,
                                rules::TensorInfo known, Rational factor = {1, 1});
  // The same data as they are known elsewhere: across a call, on another mesh. Where another scale
  // is stated with its type, as for what leaves a region, the data mean something else.
  llvm::Expected<NodeId> seen_as(NodeId node, rules::TensorInfo known);
  llvm::Expected<NodeId> number(const ir::AttrValue &literal, rules::TensorInfo known);
  // Per coordinate of the condition: of the first node where it holds, else of the second.
  llvm::Expected<NodeId> chosen(NodeId condition, NodeId then, NodeId other,
                                rules::TensorInfo known);
  ir::FunctionId region(ir::InstId id, llvm::StringRef role) const;

  llvm::Error transpose(const Entry &entry, std::vector<Meaning> &gradients);
  bool cuts_gradients(const Entry &entry);
  // The gradient of a loss of the main body as one of its type that is given, along all of its
  // lists.
  Meaning seeded(NodeId root, const Meaning *seed) const;

  Reference &reference_;
  ir::Program &program_;
  checker::CheckedProgram &checked_;
  Trace trace_;
  Frame main_;
  const llvm::DenseMap<uint32_t, Meaning> *replaced_ = nullptr;
  llvm::DenseSet<uint32_t> differentiated_; // by InstId
};

} // namespace spmd::runtime
