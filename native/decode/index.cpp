#include "index.h"

#include <cstring>

namespace podium {
namespace {

uint64_t load(const uint8_t* p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(p[i]) << (8 * i);
  return value;
}

void store(uint8_t* p, int bytes, uint64_t value) {
  for (int i = 0; i < bytes; ++i) p[i] = static_cast<uint8_t>(value >> (8 * i));
}

// Eight lanes, each a bijection of its words: a file that differs in one word has another hash for certain, other files
// with chance 2⁻⁶⁴. Not made against forgery. Some 8 bytes a cycle.
constexpr uint64_t prime = 0x9E3779B185EBCA87u;

void mix(uint64_t (&lanes)[8], const uint8_t* chunk) {
  for (int i = 0; i < 8; ++i) {
    const uint64_t mixed = (lanes[i] ^ load(chunk + 8 * i, 8)) * prime;
    lanes[i] = mixed << 29 | mixed >> 35;
  }
}

uint64_t hash(const uint8_t* bytes, size_t count, uint64_t seed) {
  uint64_t lanes[8];
  for (int i = 0; i < 8; ++i) lanes[i] = seed + static_cast<uint64_t>(i) * prime;
  size_t at = 0;
  for (; count - at >= 64; at += 64) mix(lanes, bytes + at);
  uint8_t last[64] = {};
  std::memcpy(last, bytes + at, count - at);
  mix(lanes, last);
  uint64_t result = count;
  for (const uint64_t lane : lanes) {
    result = (result ^ lane) * prime;
    result ^= result >> 32;
  }
  return result;
}

}  // namespace

uint64_t index_seal(const uint8_t* index, size_t index_bytes, const uint8_t* jpeg, size_t jpeg_bytes) {
  const uint64_t head = load(index, 8);
  return hash(jpeg, jpeg_bytes, hash(index + index_head_bytes, index_bytes - index_head_bytes, head));
}

IndexLayout::IndexLayout(const Header& header, int places_every)
    : interval(places_every),
      components(header.components),
      rows(places_every ? header.mcus_down : 0),
      places_per_row(places_every ? (header.mcus_across + places_every - 1) / places_every : 0) {}

int choose_interval(const Header& header, size_t jpeg_bytes) {
  for (int interval = 8;; interval *= 2) {
    const IndexLayout layout(header, interval);
    if (layout.bytes() * 25 <= jpeg_bytes) return interval;
    if (layout.places_per_row == 1) return 0;
  }
}

bool SeekIndex::open(const uint8_t* index, size_t index_bytes, const uint8_t* jpeg, size_t jpeg_bytes,
                     const Header& header) {
  if (index_bytes < index_head_bytes || index[0] != 'P' || index[1] != 'X') return false;
  const int interval = static_cast<int>(load(index + 2, 2));
  if (interval != 0 && interval < 8) return false;
  layout_ = IndexLayout(header, interval);
  index_ = index;
  return index_bytes == layout_.bytes() && load(index + 4, 4) == jpeg_bytes &&
         load(index + 8, 8) == index_seal(index, index_bytes, jpeg, jpeg_bytes);
}

uint64_t SeekIndex::bit_of(int row, int place) const {
  const uint8_t* at = row_at(row);
  uint64_t bit = load(at, 4);
  at += 2;
  for (int i = 0; i < place; ++i) bit += load(at += layout_.place_bytes(), 2);
  return bit;
}

Place SeekIndex::before(int row, int mcu) const {
  const int place = mcu / layout_.interval;
  Place found{place * layout_.interval, bit_of(row, place), {}};
  const uint8_t* dc = row_at(row) + 4 + static_cast<size_t>(place) * layout_.place_bytes();
  for (int c = 0; c < layout_.components; ++c) found.dc[c] = static_cast<int16_t>(load(dc + 2 * c, 2));
  return found;
}

uint64_t SeekIndex::end(int row, int mcu) const {
  const int place = (mcu + layout_.interval - 1) / layout_.interval;
  if (place < layout_.places_per_row) return bit_of(row, place);
  return row + 1 < layout_.rows ? bit_of(row + 1, 0) : UINT64_MAX;
}

bool IndexWriter::add(const Place& place) {
  const bool row_start = place.mcu == 0;
  const uint64_t number = row_start ? place.bit : place.bit - last_bit_;
  const int bytes = row_start ? 4 : 2;
  if (number >> (8 * bytes) != 0) return false;
  store(at_, bytes, number);
  at_ += bytes;
  for (int c = 0; c < layout_.components; ++c, at_ += 2) store(at_, 2, static_cast<uint16_t>(place.dc[c]));
  last_bit_ = place.bit;
  return true;
}

size_t IndexWriter::finish(const uint8_t* jpeg, size_t jpeg_bytes) {
  to_[0] = 'P';
  to_[1] = 'X';
  store(to_ + 2, 2, static_cast<uint64_t>(layout_.interval));
  store(to_ + 4, 4, jpeg_bytes);
  store(to_ + 8, 8, index_seal(to_, layout_.bytes(), jpeg, jpeg_bytes));
  return layout_.bytes();
}

}  // namespace podium
