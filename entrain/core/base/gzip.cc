#include "entrain/core/base/gzip.h"

#include <limits>

#include <zlib.h>

#include "entrain/core/base/errors.h"

namespace entrain {

std::string gzip(std::string_view bytes) {
  constexpr int kGzip = 16;  // added to the window's bits: a gzip member instead of zlib's
  constexpr int kMemory = 8;
  z_stream stream{};
  if (bytes.size() > std::numeric_limits<uInt>::max() || deflateInit2(&stream,
                                                                      Z_DEFAULT_COMPRESSION,
                                                                      Z_DEFLATED,
                                                                      MAX_WBITS + kGzip,
                                                                      kMemory,
                                                                      Z_DEFAULT_STRATEGY) != Z_OK) {
    throw SystemFailure("gzip: too many bytes, or too little memory");
  }
  std::string result(deflateBound(&stream, bytes.size()), '\0');
  // zlib does not write to its input.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int end = deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  ENTRAIN_INVARIANT(end == Z_STREAM_END, "gzip: its own bound was too small");
  return result;
}

}  // namespace entrain
