// The tensors of a Spec in the memory that one call gave them.
#pragma once

#include <span>
#include <vector>

#include "engines/cudnn/graph_spec.h"

namespace fovea::cudnn::on_host {

struct At {
  std::int64_t b = 0, h = 0, i = 0, j = 0;  // query and key, or position and feature
};

class SpecMemory {
 public:
  SpecMemory(const Spec& spec, std::vector<void*> pointers) : spec_(spec), data_(pointers) {}

  const Spec& spec() const { return spec_; }
  // Axes of one element broadcast.
  double get(std::size_t tensor, const At& at) const;
  double get(Role role, const At& at) const { return get(place(role), at); }
  void set(Role role, const At& at, double value) const;
  bool has(Role role) const { return spec_.find(role) != nullptr; }

 private:
  std::size_t place(Role role) const;
  std::int64_t element(const Tensor& tensor, const At& at) const;

  const Spec& spec_;
  std::vector<void*> data_;  // in the order of spec_.tensors
};

// The values of the steps at one position.
class SpecSteps {
 public:
  explicit SpecSteps(const SpecMemory& memory) : memory_(memory) {}
  double modified(double score, const At& at);
  double derivative(double score, double grad, const At& at);

 private:
  void run(std::size_t first, std::size_t last);
  double value(const Ref& ref) const;
  double apply(const Step& step) const;

  const SpecMemory& memory_;
  std::vector<double> values_;
  At at_;
  double score_ = 0, grad_ = 0;
};

}  // namespace fovea::cudnn::on_host
