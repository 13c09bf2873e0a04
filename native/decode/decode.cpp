#include "decode.h"

#include <memory>
#include <vector>

#include "jpeg.h"
#include "podium_native.h"

namespace podium {
namespace {

size_t rgb_bytes(const Rect& rect) { return static_cast<size_t>(rect.w) * static_cast<size_t>(rect.h) * 3; }

// True where Podium's own decoder has the status, which is PODIUM_OK or that of the box.
bool decode_box_here(const File& file, const Rect& box, Scratch& scratch, Decoded* decoded, int32_t* status) {
  BaselineReader reader(scratch.baseline, kernels(scratch.flags));
  decoded->stale = file.index != nullptr;
  if (!reader.open(file.jpeg, file.jpeg_bytes)) return false;
  const Header& header = reader.header();
  SeekIndex index;
  if (file.index) decoded->stale = !index.open(file.index, file.index_bytes, file.jpeg, file.jpeg_bytes, header);
  decoded->width = header.width;
  decoded->height = header.height;
  *status = check_box(box, header.width, header.height);
  if (*status != PODIUM_OK) return true;

  decoded->have = needed(box, header.width, header.height);
  uint8_t* out = scratch.decoded.at_least(rgb_bytes(decoded->have));
  if (file.index && !decoded->stale && index.has_places()) {
    if (reader.read(decoded->have, &index, out)) return true;
    decoded->stale = true;
  }
  return reader.read(decoded->have, nullptr, out);
}

int32_t decode_box_by_libjpeg(const File& file, const Rect& box, Scratch& scratch, Decoded* decoded) {
  JpegReader reader;
  int32_t status = reader.open(file.jpeg, file.jpeg_bytes);
  if (status == PODIUM_OK) status = check_box(box, reader.width(), reader.height());
  if (status != PODIUM_OK) return status;
  decoded->width = reader.width();
  decoded->height = reader.height();
  status = reader.start(needed(box, reader.width(), reader.height()), &decoded->have);
  if (status != PODIUM_OK) return status;
  return reader.read(scratch.decoded.at_least(rgb_bytes(decoded->have)));
}

int32_t decode_whole_by_libjpeg(JpegReader& reader, uint8_t* out) {
  Rect have;
  const int32_t status = reader.start({0, 0, reader.width(), reader.height()}, &have);
  return status == PODIUM_OK ? reader.read(out) : status;
}

}  // namespace

int32_t decode_box(const File& file, const Rect& box, int32_t flags, Scratch& scratch, Decoded* decoded) {
  int32_t status = PODIUM_OK;
  if (!(flags & PODIUM_LIBJPEG) && decode_box_here(file, box, scratch, decoded, &status)) return status;
  return decode_box_by_libjpeg(file, box, scratch, decoded);
}

int32_t decode_whole(const uint8_t* jpeg, size_t jpeg_bytes, const int32_t size_wh[2], int32_t flags, uint8_t* out) {
  if (!(flags & PODIUM_LIBJPEG)) {
    const std::unique_ptr<BaselineScratch> scratch(new BaselineScratch);  // not cleared, unlike make_unique's
    BaselineReader reader(*scratch, kernels(flags));
    if (reader.open(jpeg, jpeg_bytes)) {
      const int w = reader.header().width, h = reader.header().height;
      if (w != size_wh[0] || h != size_wh[1]) return PODIUM_SIZE_MISMATCH;
      if (reader.read({0, 0, w, h}, nullptr, out)) return PODIUM_OK;
    }
  }
  JpegReader reader;
  const int32_t status = reader.open(jpeg, jpeg_bytes);
  if (status != PODIUM_OK) return status;
  if (reader.width() != size_wh[0] || reader.height() != size_wh[1]) return PODIUM_SIZE_MISMATCH;
  return decode_whole_by_libjpeg(reader, out);
}

int32_t build_index(const uint8_t* jpeg, size_t jpeg_bytes, int32_t flags, uint8_t* index, size_t* index_bytes) {
  if (!(flags & PODIUM_LIBJPEG)) {
    const std::unique_ptr<BaselineScratch> scratch(new BaselineScratch);  // not cleared, unlike make_unique's
    BaselineReader reader(*scratch, kernels(flags));
    if (reader.open(jpeg, jpeg_bytes) && (*index_bytes = reader.build_index(index)) > 0) return PODIUM_OK;
  }
  JpegReader reader;
  const int32_t status = reader.open(jpeg, jpeg_bytes);
  if (status != PODIUM_OK) return status;
  std::vector<uint8_t> pixels(rgb_bytes({0, 0, reader.width(), reader.height()}));
  return decode_whole_by_libjpeg(reader, pixels.data());
}

}  // namespace podium
