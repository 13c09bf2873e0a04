#include "header.h"

#include <cstring>

#include "podium_native.h"

namespace podium {
namespace {

constexpr int max_side = 65500;  // libjpeg's

// A segment's bytes, after its length.
struct Segment {
  const uint8_t* data;
  size_t size;
};

int two_bytes(const uint8_t* p) { return p[0] << 8 | p[1]; }

class Parser {
 public:
  Parser(const uint8_t* jpeg, size_t size, Header& header) : jpeg_(jpeg), size_(size), header_(header) {}

  bool run() {
    if (size_ < 4 || jpeg_[0] != 0xFF || jpeg_[1] != 0xD8) return false;
    for (size_t at = 2; at + 4 <= size_;) {
      const size_t length = static_cast<size_t>(two_bytes(jpeg_ + at + 2));
      if (jpeg_[at] != 0xFF || length < 2 || length > size_ - at - 2) return false;
      const uint8_t marker = jpeg_[at + 1];
      const Segment segment{jpeg_ + at + 4, length - 2};
      at += 2 + length;
      if (marker == 0xDA) {
        header_.scan_begin = at;
        return scan(segment) && colours_are_ycc() && has_end_marker(jpeg_ + at, size_ - at);
      }
      if (!other(marker, segment)) return false;
    }
    return false;
  }

 private:
  bool other(uint8_t marker, Segment segment) {
    switch (marker) {
      case 0xC0:  // baseline, and extended sequential with Huffman codes
      case 0xC1: return frame(segment);
      case 0xC4: return huffman_tables(segment);
      case 0xDB: return quantization_tables(segment);
      case 0xDD: return segment.size == 2 && two_bytes(segment.data) == 0;
      case 0xE0: jfif_ = jfif_ || (segment.size >= 14 && std::memcmp(segment.data, "JFIF", 5) == 0); return true;
      case 0xEE:
        if (segment.size >= 12 && std::memcmp(segment.data, "Adobe", 5) == 0) adobe_transform_ = segment.data[11];
        return true;
      default: return (marker >= 0xE1 && marker <= 0xEF) || marker == 0xFE;
    }
  }

  bool frame(Segment segment) {
    if (frame_seen_ || segment.size < 6 || segment.data[0] != 8) return false;
    frame_seen_ = true;
    header_.height = two_bytes(segment.data + 1);
    header_.width = two_bytes(segment.data + 3);
    header_.components = segment.data[5];
    if ((header_.components != 1 && header_.components != 3) ||
        segment.size != 6 + 3 * static_cast<size_t>(header_.components)) {
      return false;
    }
    if (header_.width < 1 || header_.height < 1 || header_.width > max_side || header_.height > max_side ||
        static_cast<int64_t>(header_.width) * header_.height > PODIUM_MAX_PIXELS) {
      return false;
    }
    for (int c = 0; c < header_.components; ++c) {
      const uint8_t* spec = segment.data + 6 + 3 * c;
      id_[c] = spec[0];
      header_.component[c].h = spec[1] >> 4;
      header_.component[c].v = spec[1] & 15;
      quant_of_[c] = spec[2];
    }
    return sampling();
  }

  bool sampling() {
    header_.h = header_.component[0].h;
    header_.v = header_.component[0].v;
    const int most = header_.components == 1 ? 1 : 2;
    if (header_.h < 1 || header_.h > most || header_.v < 1 || header_.v > most) return false;
    for (int c = 1; c < header_.components; ++c) {
      if (header_.component[c].h != 1 || header_.component[c].v != 1) return false;
    }
    // Of a chroma row of one or two samples libjpeg makes copies instead of interpolating.
    if (header_.h == 2 && header_.width <= 4) return false;
    header_.mcus_across = (header_.width + header_.mcu_width() - 1) / header_.mcu_width();
    header_.mcus_down = (header_.height + header_.mcu_height() - 1) / header_.mcu_height();
    return true;
  }

  bool huffman_tables(Segment segment) {
    while (segment.size > 16) {
      const int index = segment.data[0];
      size_t symbols = 0;
      for (int i = 1; i <= 16; ++i) symbols += segment.data[i];
      if ((index & 0xEF) > 3 || symbols > 256 || symbols > segment.size - 17) return false;
      huffman_[index >> 4][index & 15] = {segment.data + 1, segment.data + 17};
      segment.data += 17 + symbols;
      segment.size -= 17 + symbols;
    }
    return segment.size == 0;
  }

  bool quantization_tables(Segment segment) {
    while (segment.size > 0) {
      const int precision = segment.data[0] >> 4, index = segment.data[0] & 15;
      const size_t bytes = precision ? 129 : 65;
      if (precision > 1 || index > 3 || segment.size < bytes) return false;
      for (int i = 0; i < 64; ++i) {
        const int value = precision ? two_bytes(segment.data + 1 + 2 * i) : segment.data[1 + i];
        quant_[index][natural_order[i]] = static_cast<int16_t>(value);
      }
      quant_seen_[index] = true;
      segment.data += bytes;
      segment.size -= bytes;
    }
    return true;
  }

  bool scan(Segment segment) {
    const size_t n = static_cast<size_t>(header_.components);
    if (!frame_seen_ || segment.size != 4 + 2 * n || segment.data[0] != n) return false;
    const uint8_t* rest = segment.data + 1 + 2 * n;
    if (rest[0] != 0 || rest[1] != 63 || rest[2] != 0) return false;
    for (size_t c = 0; c < n; ++c) {
      const int id = segment.data[1 + 2 * c], tables = segment.data[2 + 2 * c];
      if (id != id_[c] || (tables >> 4) > 3 || (tables & 15) > 3 || quant_of_[c] > 3 || !quant_seen_[quant_of_[c]]) {
        return false;
      }
      Component& component = header_.component[c];
      component.dc = huffman_[0][tables >> 4];
      component.ac = huffman_[1][tables & 15];
      if (!component.dc.counts || !component.ac.counts) return false;
      std::memcpy(component.quant, quant_[quant_of_[c]], sizeof component.quant);
    }
    return n == 1 || (id_[0] != id_[1] && id_[0] != id_[2] && id_[1] != id_[2]);
  }

  // libjpeg's rule: a JFIF marker means YCbCr, else Adobe's marker says, else the components' names.
  bool colours_are_ycc() const {
    if (header_.components == 1 || jfif_) return true;
    if (adobe_transform_ >= 0) return adobe_transform_ == 1;
    return id_[0] == 1 && id_[1] == 2 && id_[2] == 3;
  }

  const uint8_t* jpeg_;
  const size_t size_;
  Header& header_;
  bool frame_seen_ = false, jfif_ = false, quant_seen_[4] = {};
  int adobe_transform_ = -1, id_[max_components] = {}, quant_of_[max_components] = {};
  int16_t quant_[4][64];
  HuffmanSpec huffman_[2][4];
};

}  // namespace

bool read_header(const uint8_t* jpeg, size_t jpeg_bytes, Header& header) {
  return Parser(jpeg, jpeg_bytes, header).run();
}

bool has_end_marker(const uint8_t* begin, size_t bytes) {
  for (size_t i = bytes; i >= 2; --i) {
    if (begin[i - 2] == 0xFF && begin[i - 1] == 0xD9) return true;
  }
  return false;
}

}  // namespace podium
