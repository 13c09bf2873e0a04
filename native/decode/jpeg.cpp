// libjpeg-turbo, with its traps kept in. Its error handler jumps out with longjmp, which runs no destructors, so the
// three functions that set a jump target own nothing: the reader is the caller's, and libjpeg's own memory is freed
// with it. A reader serves one file: a reused one would lend the last file's tables to a file that has none.
#include "jpeg.h"

#include <algorithm>

#include <jerror.h>

#include "header.h"
#include "podium_native.h"

namespace podium {
namespace {

int32_t status_of_error(int code) {
  switch (code) {
    case JERR_NO_SOI:
    case JERR_INPUT_EMPTY: return PODIUM_NOT_JPEG;
    case JERR_INPUT_EOF: return PODIUM_TRUNCATED;
    case JERR_OUT_OF_MEMORY: return PODIUM_NO_MEMORY;
    case JERR_IMAGE_TOO_BIG:
    case JERR_WIDTH_OVERFLOW: return PODIUM_TOO_LARGE;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED: return PODIUM_UNSUPPORTED;
    default: return PODIUM_CORRUPT;
  }
}

// libjpeg goes on after these with invented pixels. Other warnings (stray bytes before a marker, an odd JFIF
// version) leave the picture whole.
int32_t status_of_warning(int code) {
  switch (code) {
    case JWRN_JPEG_EOF: return PODIUM_TRUNCATED;
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: return PODIUM_CORRUPT;
    default: return PODIUM_OK;
  }
}

// Adobe writes CMYK inverted and Pillow takes every CMYK file so; this is its CMYK → RGB, to the bit.
void rgb_from_inverted_cmyk(const uint8_t* cmyk, int pixels, uint8_t* rgb) {
  for (int i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      const int ink = (255 - cmyk[c]) * cmyk[3] + 128;
      rgb[c] = static_cast<uint8_t>(std::max(0, cmyk[3] - (((ink >> 8) + ink) >> 8)));
    }
  }
}

}  // namespace

void JpegReader::fail(j_common_ptr cinfo) {
  auto* errors = reinterpret_cast<Errors*>(cinfo->err);
  if (errors->status == PODIUM_OK) errors->status = status_of_error(errors->base.msg_code);
  longjmp(errors->escape, 1);
}

void JpegReader::on_message(j_common_ptr cinfo, int level) {
  if (level >= 0) return;  // a trace, not a warning
  auto* errors = reinterpret_cast<Errors*>(cinfo->err);
  errors->status = status_of_warning(errors->base.msg_code);
  if (errors->status != PODIUM_OK) fail(cinfo);
}

void JpegReader::on_progress(j_common_ptr cinfo) {
  const auto* jpeg = reinterpret_cast<j_decompress_ptr>(cinfo);
  const int64_t pixels = static_cast<int64_t>(jpeg->image_width) * jpeg->image_height;
  if (jpeg->input_scan_number <= 1) return;
  if (jpeg->input_scan_number > PODIUM_MAX_SCANS || jpeg->input_scan_number * pixels > PODIUM_MAX_SCANNED_PIXELS) {
    reinterpret_cast<Errors*>(cinfo->err)->status = PODIUM_TOO_LARGE;
    fail(cinfo);
  }
}

JpegReader::~JpegReader() {
  jpeg_destroy_decompress(&cinfo_);  // does nothing to a struct still zero
}

int32_t JpegReader::open(const uint8_t* jpeg, size_t jpeg_bytes) {
  // libjpeg looks for a start marker but says "no SOI" also for an empty or tiny file; settle that here.
  if (jpeg_bytes < 3 || jpeg[0] != 0xFF || jpeg[1] != 0xD8 || jpeg[2] != 0xFF) return PODIUM_NOT_JPEG;
  cinfo_.err = jpeg_std_error(&errors_.base);
  errors_.base.error_exit = fail;
  errors_.base.emit_message = on_message;
  if (setjmp(errors_.escape)) return errors_.status;

  jpeg_create_decompress(&cinfo_);
  progress_.progress_monitor = on_progress;
  cinfo_.progress = &progress_;
  jpeg_mem_src(&cinfo_, jpeg, static_cast<unsigned long>(jpeg_bytes));
  jpeg_read_header(&cinfo_, TRUE);
  if (static_cast<int64_t>(cinfo_.image_width) * cinfo_.image_height > PODIUM_MAX_PIXELS) return PODIUM_TOO_LARGE;
  if (!has_end_marker(cinfo_.src->next_input_byte, cinfo_.src->bytes_in_buffer)) return PODIUM_TRUNCATED;
  return PODIUM_OK;
}

int32_t JpegReader::start(const Rect& wanted, Rect* decoded) {
  if (setjmp(errors_.escape)) return errors_.status;

  const bool cmyk = cinfo_.jpeg_color_space == JCS_CMYK || cinfo_.jpeg_color_space == JCS_YCCK;
  cinfo_.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  cinfo_.dct_method = JDCT_ISLOW;     // on AVX2 as fast as IFAST, and 4–6 dB better at high quality
  cinfo_.do_fancy_upsampling = TRUE;  // also keeps merged upsampling off
  cinfo_.do_block_smoothing = FALSE;  // it guesses at coefficients from neighbours a crop may not have
  jpeg_start_decompress(&cinfo_);

  bool subsampled = false;
  for (int i = 0; i < cinfo_.num_components; ++i) {
    subsampled |= cinfo_.comp_info[i].h_samp_factor != cinfo_.max_h_samp_factor;
  }
  // Fancy upsampling treats the edge of a partial row as the edge of the image. A margin keeps that out of the wanted
  // pixels; 8 also keeps the chroma row wider than the 3 samples below which libjpeg changes its upsampler.
  const int margin = subsampled ? 8 : 0;
  const int left = std::max(wanted.x - margin, 0);
  const int right = std::min(wanted.x + wanted.w + margin, width());
  JDIMENSION x = static_cast<JDIMENSION>(left), w = static_cast<JDIMENSION>(right - left);
  if (right - left < width()) jpeg_crop_scanline(&cinfo_, &x, &w);
  if (wanted.y > 0 &&
      jpeg_skip_scanlines(&cinfo_, static_cast<JDIMENSION>(wanted.y)) != static_cast<JDIMENSION>(wanted.y)) {
    return PODIUM_CORRUPT;
  }
  decoded_ = {static_cast<int>(x), wanted.y, static_cast<int>(w), wanted.h};
  *decoded = decoded_;
  return PODIUM_OK;
}

int32_t JpegReader::read(uint8_t* out) {
  if (setjmp(errors_.escape)) return errors_.status;

  if (cinfo_.out_color_space == JCS_CMYK) {
    read_cmyk_rows(out);
    return PODIUM_OK;
  }
  constexpr int rows_at_once = 16;
  const size_t stride = static_cast<size_t>(decoded_.w) * 3;
  const int end = decoded_.y + decoded_.h;
  while (static_cast<int>(cinfo_.output_scanline) < end) {
    const int y = static_cast<int>(cinfo_.output_scanline);
    const int rows = std::min(rows_at_once, end - y);
    JSAMPROW pointers[rows_at_once];
    for (int r = 0; r < rows; ++r) pointers[r] = out + static_cast<size_t>(y - decoded_.y + r) * stride;
    if (jpeg_read_scanlines(&cinfo_, pointers, static_cast<JDIMENSION>(rows)) == 0) return PODIUM_CORRUPT;
  }
  return PODIUM_OK;
}

// Called under read()'s jump target; the row buffer is libjpeg's and goes with the reader.
void JpegReader::read_cmyk_rows(uint8_t* out) {
  JSAMPARRAY row = cinfo_.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&cinfo_), JPOOL_IMAGE,
                                            static_cast<JDIMENSION>(decoded_.w) * 4, 1);
  for (int y = 0; y < decoded_.h; ++y) {
    if (jpeg_read_scanlines(&cinfo_, row, 1) != 1) ERREXIT(&cinfo_, JERR_CANT_SUSPEND);
    rgb_from_inverted_cmyk(row[0], decoded_.w, out + static_cast<size_t>(y) * static_cast<size_t>(decoded_.w) * 3);
  }
}

}  // namespace podium
