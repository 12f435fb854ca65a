// The text of a kernel, put together: headers of device/, the formula, the types and tiles it is
// compiled for, and the kernel's entry. Each kernel is one self-contained translation unit.
#pragma once

#include <span>
#include <string>

#include "cuda/nvrtc.h"
#include "engines/jit/compiler.h"
#include "engines/jit/kernels.h"
#include "engines/jit/render.h"

namespace fovea::jit {

struct KernelSource {
  std::string name;  // of its kernel: "fovea_forward"
  std::string own;   // what is not headers: with their hash, all that the kernel depends on
  TranslationUnit unit() const;  // with all headers, to be compiled
};

// Behind the formula's words: so many device::GradientWrite from this word on.
struct CapturedWords {
  int first = 0, count = 0;
};

// What a plan's kernels are told of its formula, each as its row asks for it.
struct FormulaSource {
  const Rendered& formula;
  std::string captured;         // struct CapturedTerms: captured_text
  std::string hopper_captured;  // hopper_captured_text
  CapturedWords captured_words{};
};
KernelSource source_of(const KernelRow& row, const Problem& baked, const KernelShape& shape,
                       const FormulaSource& formula);

// The kernel that finds minima and maxima of captured tensors of this type: fovea_summarize_<type>.
KernelSource summary_source(DType dtype);

// The kernel of device/<name>.h, which is not a template, with what it takes.
KernelSource captured_source(const std::string& name, const std::string& parameters);

// The headers of device/ as texts, put into the library by the build (cmake/embed.cmake).
std::span<const cuda::NamedText> device_headers();

// The text with each `#include "..."` of a header of device/ replaced by that header, once.
std::string expand(const std::string& text);

// Of all headers of device/, 32 digits.
const std::string& headers_hash();

}  // namespace fovea::jit
