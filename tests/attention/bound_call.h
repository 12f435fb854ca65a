// A whole valid call with memory of its own, for plans that run it and for tests that break one
// thing in it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention/engine.h"
#include "attention/problem_text.h"

namespace fovea::test {

// Needs as much workspace as it is told to.
class WorkspacePlan : public Plan {
 public:
  explicit WorkspacePlan(std::size_t bytes) : bytes_(bytes) {}
  std::size_t workspace_bytes(const Sizes&) const override { return bytes_; }
  std::size_t memory_bytes() const override { return 0; }
  void run(const Bindings&) const override {}

 private:
  std::size_t bytes_;
};

// Everything that the problem of the line has is bound, dense, with the values of the line.
class BoundCall {
 public:
  explicit BoundCall(const std::string& line);

  Problem problem;
  LineValues values;
  Bindings bindings;
  std::vector<ir::TensorView> tensors;
  std::vector<PerCall<ir::ScalarValue>> scalars;
  std::vector<BoundGradient> tensor_gradients;
  std::vector<void*> scalar_gradients;
  std::size_t workspace_bytes = 128;

  // Binds all that a run of the plan needs beside the executor. The literals stay the caller's.
  void bind(const Plan& plan, const std::vector<float>& literals);

  // "accepted", or the text of the refusal.
  std::string outcome(bool device_memory = false);

 private:
  void bind_tensors();
  void bind_rows();
  void bind_sequences();
  void bind_captured();
  void bind_vectors();
  void* allocate(std::int64_t bytes);  // at least one byte, aligned to 64

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
};

}  // namespace fovea::test
