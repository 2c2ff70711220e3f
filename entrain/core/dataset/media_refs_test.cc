#include "entrain/core/dataset/media_refs.h"

#include <gtest/gtest.h>

#include "entrain/core/base/errors.h"

#include "tests/oracle/expect_error.h"

namespace entrain {
namespace {

using oracle::error_of;

MediaRefs refs_of(const std::string& record) {
  Json document = parse_json(record, "x");
  return media_of(document, "record 7");
}

std::vector<std::string> texts(const std::vector<MediaRef>& refs) {
  std::vector<std::string> result;
  for (const MediaRef& ref : refs) {
    result.push_back(ref.path.empty() ? "bytes " + ref.bytes : ref.path);
  }
  return result;
}

using Texts = std::vector<std::string>;

TEST(MediaOf, FindsMediaOfARecordsOwnKeys) {
  EXPECT_EQ(texts(refs_of(R"({"image": "a.png", "audios": ["b.wav", "c.wav"]})").images),
            Texts{"a.png"});
  EXPECT_EQ(texts(refs_of(R"({"image": "a.png", "audios": ["b.wav", "c.wav"]})").audio),
            (Texts{"b.wav", "c.wav"}));
  EXPECT_EQ(texts(refs_of(R"({"images": [{"path": "a.png"}, {"url": "file:///b/c.png"}]})").images),
            (Texts{"a.png", "/b/c.png"}));
  EXPECT_EQ(texts(refs_of(R"({"video": {"path": "a.mp4"}})").videos), Texts{"a.mp4"});
  EXPECT_TRUE(refs_of(R"({"image": null, "images": [], "text": "image"})").images.empty());
  EXPECT_TRUE(refs_of(R"({"image": ""})").images.empty());
}

TEST(MediaOf, FindsMediaThatMessagesName) {
  const MediaRefs refs = refs_of(R"({"messages": [
    {"role": "system", "content": "x"},
    {"role": "user", "content": [
      {"type": "image_url", "image_url": {"url": "data:image/png;base64,Zm9v"}},
      {"type": "text", "text": "and", "image": "no.png"},
      {"type": "image", "image": "b.png"},
      {"type": "input_audio", "input_audio": {"data": "YmFy", "format": "wav"}},
      {"type": "audio_url", "audio_url": "c.wav"},
      {"type": "image"}]},
    {"role": "assistant", "content": [{"type": "image", "path": "d.png"}]}]})");
  EXPECT_EQ(texts(refs.images), (Texts{"bytes foo", "b.png", "d.png"}));
  EXPECT_EQ(texts(refs.audio), (Texts{"bytes bar", "c.wav"}));
  // Places in the text, and files beside them.
  EXPECT_EQ(texts(refs_of(R"({"images": ["a.png"], "messages": [
    {"role": "user", "content": [{"type": "image", "image": null}]}]})")
                      .images),
            Texts{"a.png"});
}

TEST(MediaOf, RefusesWhatCannotBeMeant) {
  const auto refused = [](const std::string& record, const std::string& reason) {
    const std::string message = error_of<InvalidInput>([&] { refs_of(record); });
    EXPECT_NE(message.find("record 7: "), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  refused(R"({"image": "a.png", "images": ["b.png"]})", "`image` and `images` both");
  refused(R"({"image": "b.png", "messages": [{"content": [{"type": "image", "image": "a.png"}]}]})",
          "`messages` and `image` both");
  refused(R"({"image": 5})", "image: number");
  refused(R"({"images": ["a.png", null]})", "images[1]: names no file");
  refused(R"({"image": "https://x.org/a.png"})", "download");
  refused(R"({"images": [{"url": "s3://x/a.png"}]})", "images[0].url: 's3://x/a.png'");
  refused(R"({"image": "data:image/png,xyz"})", "base64");
  refused(R"({"image": {"base64": "?"}})", "no base64");
  refused(R"({"image": "data:image/png;base64,"})", "no base64");
}

}  // namespace
}  // namespace entrain
