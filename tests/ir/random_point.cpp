#include "tests/ir/random_point.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <sstream>

namespace fovea::test {
namespace {

using namespace ir;

std::int64_t extent_value(const Extent& extent, const Sizes& sizes) {
  switch (extent.kind) {
    case Extent::Kind::Number: return extent.number;
    case Extent::Kind::B: return sizes.B;
    case Extent::Kind::H: return sizes.H;
    case Extent::Kind::Hkv: return sizes.Hkv;
    case Extent::Kind::Sq: return sizes.Sq;
    case Extent::Kind::Skv: return sizes.Skv;
  }
  return 0;
}

template <class T>
void store(std::vector<std::uint8_t>& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

// Positive, and away from 0: most points of smooth formulas are then where they have derivatives.
float tame_float(Random& random) {
  return 0.25f + static_cast<float>(random.below(4097)) / 2048.0f;
}

}  // namespace

RandomCaptured::RandomCaptured(Random& random, Values kind, Sizes sizes)
    : kind_(kind), sizes_(sizes) {
  for (const TensorDecl& tensor : random_declarations().tensors) {
    std::vector<std::int64_t> extents;
    std::size_t elements = 1;
    for (const Extent& extent : tensor.extents) {
      extents.push_back(extent_value(extent, sizes));
      elements *= static_cast<std::size_t>(extents.back());
    }
    storage_.emplace_back(elements * 8);
    views_.push_back(TensorView::dense(storage_.back().data(), tensor.dtype, extents));
    fill(random, static_cast<std::uint32_t>(views_.size() - 1));
  }
  for (std::size_t i = 0; i < random_declarations().scalars.size(); ++i) {
    const bool tame = kind == Values::Tame;
    scalars_.push_back({tame ? tame_float(random) : random_float(random),
                        tame ? random.between(0, 4) : random_int(random)});
  }
}

void RandomCaptured::fill(Random& random, std::uint32_t slot) {
  const bool tame = kind_ == Values::Tame;
  std::vector<std::uint8_t>& bytes = storage_[slot];
  for (std::size_t i = 0; i < bytes.size() / 8; ++i) {
    const std::int32_t integer = tame ? random.between(0, 4) : random_int(random);
    switch (views_[slot].dtype) {
      case DType::F32: store(bytes, i, tame ? tame_float(random) : random_float(random)); break;
      case DType::F16:  // tame: 1.0 .. 1.999
        store(bytes, i,
              static_cast<std::uint16_t>(tame ? 0x3c00 + random.below(1024) : random.bits()));
        break;
      case DType::BF16:
        store(bytes, i,
              static_cast<std::uint16_t>(tame ? 0x3f80 + random.below(128) : random.bits()));
        break;
      case DType::F64: store(bytes, i, static_cast<double>(tame_float(random))); break;
      case DType::I32: store(bytes, i, integer); break;
      case DType::I64: store(bytes, i, std::int64_t{integer} * (tame ? 1 : 3)); break;  // saturates
      case DType::U8: store(bytes, i, static_cast<std::uint8_t>(integer)); break;
      case DType::Bool: store(bytes, i, static_cast<std::uint8_t>(random.below(2) * 255)); break;
    }
  }
}

std::span<const std::int64_t> RandomCaptured::extents(std::uint32_t slot) const {
  return {views_[slot].extent.data(), static_cast<std::size_t>(views_[slot].rank)};
}

float& RandomCaptured::element(std::uint32_t slot, std::size_t i) {
  return *reinterpret_cast<float*>(storage_[slot].data() + i * sizeof(float));
}

template <class Real>
Point<Real> RandomCaptured::point(Random& random) const {
  Point<Real> p;
  const bool tame = kind_ == Values::Tame;
  const auto real = [&] { return tame ? random.normal() : random_float(random); };
  const auto position = [&](std::int32_t size) {
    return !tame && random.chance(10)
               ? random_int(random)
               : static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(size)));
  };
  p.score = static_cast<Real>(real());
  p.grad = static_cast<Real>(real());
  p.b = position(sizes_.B), p.h = position(sizes_.H);
  p.q = position(sizes_.Sq), p.k = position(sizes_.Skv);
  p.B = sizes_.B, p.H = sizes_.H, p.Hkv = sizes_.Hkv, p.Sq = sizes_.Sq, p.Skv = sizes_.Skv;
  p.scalars = scalars_;
  p.tensors = views_;
  return p;
}
template Point<float> RandomCaptured::point<float>(Random&) const;
template Point<double> RandomCaptured::point<double>(Random&) const;

std::vector<Range> RandomCaptured::scalar_ranges() const {
  std::vector<Range> ranges;
  for (const ScalarValue& value : scalars_) {
    ranges.push_back({IntInterval::of(value.i), RealInterval::of(value.f), {}});
  }
  return ranges;
}

Box RandomCaptured::box() const {
  Box box;
  box.B = IntInterval::of(sizes_.B), box.H = IntInterval::of(sizes_.H);
  box.Hkv = IntInterval::of(sizes_.Hkv);
  box.Sq = IntInterval::of(sizes_.Sq), box.Skv = IntInterval::of(sizes_.Skv);
  return box;
}

template <class Real>
bool same_value(Type type, const Cell<Real>& a, const Cell<Real>& b) {
  const auto same_real = [](auto x, auto y) {
    return (std::isnan(x) && std::isnan(y)) || (x == y && std::signbit(x) == std::signbit(y));
  };
  switch (type) {
    case Type::F32: return same_real(a.f, b.f) && same_real(a.exact, b.exact);
    case Type::I32: return a.i == b.i;
    case Type::Bool: return a.b == b.b;
  }
  return false;
}
template bool same_value<float>(Type, const Cell<float>&, const Cell<float>&);
template bool same_value<double>(Type, const Cell<double>&, const Cell<double>&);

bool holds(Type type, const Range& range, const Cell<float>& value) {
  switch (type) {
    case Type::F32:
      return std::isnan(value.f) ? range.f.nan : range.f.lo <= value.f && value.f <= range.f.hi;
    case Type::I32: return range.i.contains(value.i);
    case Type::Bool: return value.b ? range.b.can_true : range.b.can_false;
  }
  return false;
}

template <class Real>
std::string value_text(Type type, const Cell<Real>& cell) {
  std::ostringstream out;
  out.precision(17);
  if (type == Type::F32) out << cell.f << " (exact " << cell.exact << ")";
  if (type == Type::I32) out << cell.i;
  if (type == Type::Bool) out << (cell.b ? "true" : "false");
  return out.str();
}
template std::string value_text<float>(Type, const Cell<float>&);
template std::string value_text<double>(Type, const Cell<double>&);

template <class Real>
std::string point_text(const Point<Real>& p) {
  std::ostringstream out;
  out.precision(17);
  out << "score=" << p.score << " grad=" << p.grad << " b=" << p.b << " h=" << p.h << " q=" << p.q
      << " k=" << p.k;
  for (const ScalarValue& scalar : p.scalars) out << " {" << scalar.f << ", " << scalar.i << '}';
  return out.str();
}
template std::string point_text<float>(const Point<float>&);
template std::string point_text<double>(const Point<double>&);

}  // namespace fovea::test
