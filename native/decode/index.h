// The seek index of a JPEG file: places in its entropy-coded data from which decoding can begin, so that a crop reads
// little more than itself. A place is a bit offset and the DC predictors there; there is one at the start of each row
// of MCUs and one every `interval` MCUs within it.
//
//   0  "PX"   2  interval (0: no places)   4  bytes of the file   8  seal   16  rows
//   row:  bit offset from the start of the scan (4), DC predictors (2 each); then for each further place in the row
//         bits since the place before (2), DC predictors (2 each). All little-endian.
//
// The interval is 8, or the next power of two that keeps the index below 4 % of its file. The seal is a hash of the
// file and of the index: an index that was damaged, or that belongs to other bytes, does not open. Nobody is trusted
// further than that: a forged index gives wrong pixels at worst.
#pragma once

#include <cstddef>
#include <cstdint>

#include "header.h"

namespace podium {

constexpr size_t index_head_bytes = 16;

struct Place {
  int mcu;       // of its row
  uint64_t bit;  // counted in the file's bytes, stuffing and all, from the start of the scan
  int16_t dc[max_components];
};

// The layout that follows from a header and an interval.
struct IndexLayout {
  int interval, components, rows, places_per_row;

  IndexLayout() = default;
  IndexLayout(const Header& header, int places_every);
  size_t place_bytes() const { return 2 + 2 * static_cast<size_t>(components); }
  size_t row_bytes() const { return interval ? 2 + static_cast<size_t>(places_per_row) * place_bytes() : 0; }
  size_t bytes() const { return index_head_bytes + static_cast<size_t>(rows) * row_bytes(); }
};

class SeekIndex {
 public:
  // False for anything but the index of this very file.
  bool open(const uint8_t* index, size_t index_bytes, const uint8_t* jpeg, size_t jpeg_bytes, const Header& header);
  bool has_places() const { return layout_.interval > 0; }
  // The last place of a row at or before an MCU.
  Place before(int row, int mcu) const;
  // Where the first place at or after an MCU of a row is, be it the next row's; past all data where there is none.
  uint64_t end(int row, int mcu) const;

 private:
  const uint8_t* row_at(int row) const {
    return index_ + index_head_bytes + static_cast<size_t>(row) * layout_.row_bytes();
  }
  uint64_t bit_of(int row, int place) const;

  const uint8_t* index_ = nullptr;
  IndexLayout layout_;
};

// The hash that an index of this file has for its seal.
uint64_t index_seal(const uint8_t* index, size_t index_bytes, const uint8_t* jpeg, size_t jpeg_bytes);

// The interval that an index of this file has.
int choose_interval(const Header& header, size_t jpeg_bytes);

// Writes an index; places come in order, row by row. False if one does not fit the format.
class IndexWriter {
 public:
  IndexWriter(const IndexLayout& layout, uint8_t* to) : layout_(layout), to_(to), at_(to + index_head_bytes) {}
  bool add(const Place& place);
  size_t finish(const uint8_t* jpeg, size_t jpeg_bytes);

 private:
  IndexLayout layout_;
  uint8_t *to_, *at_;
  uint64_t last_bit_ = 0;
};

}  // namespace podium
