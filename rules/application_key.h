// The words that tell applications apart, in the order in which a key has them: the op, then each
// operand with what is known of its tensors, then what is stated of the results. Written for an
// application (rules/application_cache.cc), and compared in place with an instruction
// (checker/walk/instruction/typing.cc).
#pragma once

#include "rules/apply.h"

#include "llvm/Support/Compiler.h"

namespace spmd::rules {

// `Words` takes any number of words by a call. Inlined, or each word goes by way of memory.
template <typename Words>
LLVM_ATTRIBUTE_ALWAYS_INLINE void key_of_op(Words &words, ir::OpNameId spelling, ir::AttrsId attrs,
                                            ir::ContextId context, size_t results) {
  words(spelling.index, attrs.index, context.index, results);
}

// `tag`: what an operand is, and whether a name comes before its words.
template <typename Words, typename... Word>
LLVM_ATTRIBUTE_ALWAYS_INLINE void key_of_operand(Words &words, Slot::Form form, ir::StringId name,
                                                 Word... own) {
  const auto tag = static_cast<uint32_t>(form);
  if (name.valid())
    words(tag | 0x100u, name.index, own...);
  else
    words(tag, own...);
}

template <typename Words>
LLVM_ATTRIBUTE_ALWAYS_INLINE void key_of_tensor(Words &words, ir::StringId name,
                                                const TensorInfo &arg) {
  key_of_operand(words, Slot::Form::Tensor, name, arg.type.index, arg.shape.index, arg.sizes.index);
}

template <typename Words>
LLVM_ATTRIBUTE_ALWAYS_INLINE void key_of_literal(Words &words, Slot::Form form, ir::StringId name,
                                                 const ir::AttrValue &literal) {
  key_of_operand(words, form, name, static_cast<uint32_t>(literal.form),
                 static_cast<uint32_t>(literal.bits), static_cast<uint32_t>(literal.bits >> 32));
}

template <typename Words>
LLVM_ATTRIBUTE_ALWAYS_INLINE void key_of_result(Words &words, const ResultClaim &claim) {
  words(claim.shape.index, claim.declared.index, claim.global.index);
}

constexpr size_t kMostOfOp = 4, kMostOfOperand = 6, kMostOfTensor = 3, kMostOfResult = 3;

// Compares words with those of a key.
class KeyComparison {
public:
  explicit KeyComparison(llvm::ArrayRef<uint32_t> key) : at_(key.begin()), end_(key.end()) {}
  template <typename... Word> LLVM_ATTRIBUTE_ALWAYS_INLINE void operator()(Word... words) {
    if (static_cast<size_t>(end_ - at_) < sizeof...(words)) {
      differ_ = 1;
      return;
    }
    ((differ_ |= *at_++ ^ static_cast<uint32_t>(words)), ...); // without a branch for each
  }
  bool equal() const { return differ_ == 0 && at_ == end_; }

private:
  const uint32_t *at_, *end_;
  uint32_t differ_ = 0;
};

} // namespace spmd::rules
