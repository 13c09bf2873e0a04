#include "baseline.h"

#include <algorithm>

namespace podium {
bool BaselineReader::open(const uint8_t* jpeg, size_t jpeg_bytes) {
  jpeg_ = jpeg;
  jpeg_bytes_ = jpeg_bytes;
  if (jpeg_bytes > UINT32_MAX || !read_header(jpeg, jpeg_bytes, header_)) return false;
  if (!build_tables(header_, scratch_.tables)) return false;
  plan_blocks();
  return true;
}

bool BaselineReader::read(const Rect& wanted, const SeekIndex* index, uint8_t* out) {
  const McuArea area = needed_mcus(header_, wanted);
  Planes planes(header_, area, scratch_.planes, kernels_);
  place_blocks(planes);
  slot_size_ = planes.row_size();
  scratch_.coefficients.at_least_zeros(2 * slot_size_);
  const Target target{area, wanted, planes, out};
  const bool sound = index ? read_by_index(target, *index) : read_in_order(target);
  if (!sound) scratch_.coefficients.clear();
  return sound;
}

// The blocks of an MCU in the order of the file, each with its tables.
void BaselineReader::plan_blocks() {
  const HuffmanTables& tables = scratch_.tables;
  plan_.blocks = 0;
  for (int c = 0; c < header_.components; ++c) {
    const Component& one = header_.component[c];
    for (int b = 0; b < one.h * one.v; ++b) {
      plan_.block[plan_.blocks++] = {&tables.ac[tables.ac_of[c]], &tables.dc[tables.dc_of[c]], c, b, 0, one.h * 64};
    }
  }
}

void BaselineReader::place_blocks(const Planes& planes) {
  for (int b = 0; b < plan_.blocks; ++b) {
    McuBlock& block = plan_.block[b];
    const int across = header_.component[block.component].h;
    block.offset =
        static_cast<ptrdiff_t>(planes.block_offset(block.component, block.number / across, block.number % across));
  }
}

// Opens a run at a bit of the scan; what follows is unstuffed up to bit `end` or a marker.
void BaselineReader::open_run(int slot, uint64_t begin, uint64_t end) {
  const uint64_t scan_bytes = jpeg_bytes_ - header_.scan_begin;
  const uint64_t first = std::min(begin / 8, scan_bytes);
  const uint64_t last = std::clamp(end / 8 + 2, first, scan_bytes);
  uint8_t* to = scratch_.unstuffed[slot].at_least(static_cast<size_t>(last - first) + padding);
  const size_t bytes = kernels_.unstuff(jpeg_ + header_.scan_begin + first, static_cast<size_t>(last - first), to);
  std::fill_n(to + bytes, padding, uint8_t{0});
  scratch_.runs[slot].open(plan_, to, bytes, static_cast<int>(begin % 8));
}

bool BaselineReader::read_in_order(const Target& target) {
  const McuArea& area = target.area;
  Stream& run = scratch_.runs[0];
  open_run(0, 0, UINT64_MAX);
  std::fill_n(run.dc, max_components, 0u);
  int at = 0;  // MCUs decoded
  for (int row = area.top; row < area.bottom; ++row) {
    const int begin = row * header_.mcus_across + area.left;
    if (!run.start(begin - at, area.across(), scratch_.coefficients.data()) || !kernels_.decode_run(run)) return false;
    at = begin + area.across();
    target.planes.add_row(row, scratch_.coefficients.data());
    target.planes.write_until(row + 1, target.wanted, target.out);
  }
  // libjpeg decodes the last row to its end, and would report bad codes there; so must we look at them.
  const int rest = area.bottom * header_.mcus_across - at;
  return rest == 0 || (run.start(rest, 0, nullptr) && kernels_.decode_run(run));
}

bool BaselineReader::read_by_index(const Target& target, const SeekIndex& index) {
  const McuArea& area = target.area;
  for (int row = area.top; row < area.bottom; row += 2) {
    const int rows = std::min(2, area.bottom - row);
    for (int i = 0; i < rows; ++i) {
      const Place place = index.before(row + i, area.left);
      open_run(i, place.bit, index.end(row + i, area.right));
      Stream& run = scratch_.runs[i];
      for (int c = 0; c < max_components; ++c) run.dc[c] = static_cast<uint32_t>(int32_t{place.dc[c]});
      if (!run.start(area.left - place.mcu, area.across(), scratch_.coefficients.data() + i * slot_size_)) return false;
    }
    const bool sound = rows == 2 ? kernels_.decode_two_runs(scratch_.runs[0], scratch_.runs[1])
                                 : kernels_.decode_run(scratch_.runs[0]);
    if (!sound) return false;
    for (int i = 0; i < rows; ++i) {
      target.planes.add_row(row + i, scratch_.coefficients.data() + i * slot_size_);
      target.planes.write_until(row + i + 1, target.wanted, target.out);
    }
  }
  return true;
}

}  // namespace podium
