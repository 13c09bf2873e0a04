// Building a file's index reads every code once, and so it is also the check that the file is whole.
#include <algorithm>

#include "baseline.h"

namespace podium {
namespace {

// Places are found in unstuffed data; in the file each FF before a place has a zero behind it.
class StuffedBits {
 public:
  explicit StuffedBits(const uint8_t* data) : data_(data) {}
  uint64_t operator()(size_t bit) {
    const size_t byte = bit / 8;
    stuffing_ += static_cast<size_t>(std::count(data_ + counted_, data_ + byte, uint8_t{0xFF}));
    counted_ = byte;
    return bit + 8 * stuffing_;
  }

 private:
  const uint8_t* data_;
  size_t counted_ = 0, stuffing_ = 0;
};

bool fill_place(const Stream& run, int components, Place& place) {
  for (int c = 0; c < components; ++c) {
    const auto predictor = static_cast<int32_t>(run.dc[c]);
    place.dc[c] = static_cast<int16_t>(predictor);
    if (place.dc[c] != predictor) return false;
  }
  return true;
}

}  // namespace

size_t BaselineReader::build_index(uint8_t* out) {
  open_run(0, 0, UINT64_MAX);
  Stream& run = scratch_.runs[0];
  std::fill_n(run.dc, max_components, 0u);
  const IndexLayout layout(header_, choose_interval(header_, jpeg_bytes_));
  IndexWriter writer(layout, out);
  StuffedBits stuffed(run.data);
  bool fits = true;
  for (int row = 0; row < header_.mcus_down; ++row) {
    const int step = layout.interval ? layout.interval : header_.mcus_across;
    for (int mcu = 0; mcu < header_.mcus_across; mcu += step) {
      Place place{mcu, stuffed(run.bits_taken()), {}};
      if (!fill_place(run, header_.components, place)) return 0;
      if (layout.interval) fits = fits && writer.add(place);
      if (!run.start(std::min(step, header_.mcus_across - mcu), 0, nullptr) || !kernels_.decode_run(run)) return 0;
    }
  }
  if (!fits) writer = IndexWriter(IndexLayout(header_, 0), out);
  return writer.finish(jpeg_, jpeg_bytes_);
}

}  // namespace podium
