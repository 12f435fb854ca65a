#include "store/packed.h"

#include <array>

namespace fovea::store {

void Writer::bytes(Bytes bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

void Writer::text(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }

void Writer::number(std::uint64_t value, std::size_t size) {
  std::array<std::uint8_t, 8> little{};
  for (std::size_t i = 0; i < size; ++i) little[i] = static_cast<std::uint8_t>(value >> (8 * i));
  bytes(Bytes(little).first(size));
}

Bytes ByteReader::bytes(std::uint64_t size) {
  if (size > left_.size()) {
    ok_ = false;
    left_ = {};
    return {};
  }
  const Bytes out = left_.first(static_cast<std::size_t>(size));
  left_ = left_.subspan(out.size());
  return out;
}

std::string ByteReader::text(std::uint64_t size) {
  const Bytes out = bytes(size);
  return {out.begin(), out.end()};
}

std::uint64_t ByteReader::number(std::size_t size) {
  std::uint64_t value = 0;
  const Bytes read = bytes(size);
  for (std::size_t i = 0; i < read.size(); ++i) value |= std::uint64_t{read[i]} << (8 * i);
  return value;
}

}  // namespace fovea::store
