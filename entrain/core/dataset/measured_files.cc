#include "entrain/core/dataset/measured_files.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/json.h"
#include "entrain/core/base/thread_safety.h"
#include "entrain/core/dataset/measure.h"
#include "entrain/core/dataset/python_answers.h"
#include "entrain/core/dataset/sample_source.h"

namespace entrain {
namespace {

constexpr std::size_t kMostHeld = 4096;  // samples of a file
constexpr std::size_t kBundle = 64;      // samples that are handed over at once

// A file on its way from the thread that reads it.
struct FileOnTheWay {
  std::optional<MeasuredFile> file;    // once it is opened
  std::deque<MeasuredSample> samples;  // measured and not taken
  std::exception_ptr failure;          // of the system
};

MeasuredSample measure_sample(SampleSource& source, const MeasuredFiles::Options& options) {
  const std::string id = source.upcoming();
  MeasuredSample result;
  SampleSizes& sizes = result.sizes;
  sizes.id = id;
  try {
    FoundSample found = source.next();
    for (const MediaBytes& image : found.images) {
      sizes.images.push_back(measure_image(image, options.verify));
    }
    sizes.videos = measure_videos(found, options.verify);
    for (const MediaBytes& clip : found.audio) {
      sizes.audio_seconds.push_back(measure_clip(clip, options.verify));
    }
    std::string json = found.text.content();
    if (options.bytes) {
      set_text_lengths(sample_text(json, found.text.where), sizes);
      check_places(json, sizes, found.text.where);
    } else {
      parse_json(json, found.text.where);  // so that the text is UTF-8
    }
    if (options.keep_json) {
      result.json = std::move(json);
    }
    result.where = std::move(found.text.where);
    result.ignored = std::move(found.ignored);
    result.scattered = found.scattered;
    sizes.location.emplace();
    sizes.location->offset = found.offset;
    sizes.location->bytes = found.size;
  } catch (const InvalidInput& error) {
    result = {};
    result.sizes.id = id;
    result.damage = error.what();
  }
  return result;
}

}  // namespace

void set_text_lengths(const SampleText& text, SampleSizes& sample) {
  sample.prompt_chars = count_characters(text.prompt);
  sample.response_chars = count_characters(text.response);
  sample.prompt_tokens = prompt_tokens(text, sample.num_media());
  sample.response_tokens = response_tokens(text);
  sample.prompt_tokens_estimate = *sample.prompt_tokens;
  sample.response_tokens_estimate = *sample.response_tokens;
}

struct MeasuredFiles::State {
  State(std::vector<FileToMeasure> chosen_files, Options chosen)
      : given(std::move(chosen_files)), options(std::move(chosen)), files(given.size()) {
    for (int i = 0; i < options.threads; ++i) {
      threads.emplace_back([this] { run(); });
    }
  }

  ~State() {
    {
      const MutexLock lock(mutex);
      stopped = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Files in their order; threads that are ahead wait where too much of a file is held, but the
  // thread at the file that is taken from never waits for long.
  void run() {
    while (true) {
      std::size_t index = 0;
      {
        MutexLock lock(mutex);
        changed.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex) {
          return stopped || next_unread == given.size() ||
                 next_unread < taken + static_cast<std::size_t>(options.threads) + 1;
        });
        if (stopped || next_unread == given.size()) {
          return;
        }
        index = next_unread++;
      }
      try {
        read(index);
      } catch (...) {
        const MutexLock lock(mutex);
        files[index].failure = std::current_exception();
      }
      changed.notify_all();
    }
  }

  void read(std::size_t index) {
    const std::filesystem::path& path = given[index].path;
    const std::filesystem::path media =
        options.media.empty() ? path.parent_path() / "." : options.media;
    MeasuredFile file;
    std::unique_ptr<SampleSource> source;
    try {
      source = open_samples(path, media, given[index].columns, given[index].image_sizes);
      file.num_samples = source->num_samples();
      file.bytes_of_a_row = source->bytes_of_a_row();
      file.skipped = source->skipped();
      file.notes = source->notes();
    } catch (const UnfitColumns&) {
      throw;
    } catch (const InvalidInput& error) {
      file.damage = error.what();
    }
    const std::int64_t count = file.num_samples;
    {
      const MutexLock lock(mutex);
      files[index].file = std::move(file);
    }
    changed.notify_all();
    std::vector<MeasuredSample> bundle;
    for (std::int64_t sample = 0; sample < count; ++sample) {
      bundle.push_back(measure_sample(*source, options));
      if (bundle.size() == kBundle || sample + 1 == count) {
        MutexLock lock(mutex);
        changed.wait(lock.native(), [&]() ENTRAIN_REQUIRES(mutex) {
          return stopped || files[index].samples.size() < kMostHeld;
        });
        if (stopped) {
          return;
        }
        std::deque<MeasuredSample>& samples = files[index].samples;
        samples.insert(samples.end(),
                       std::make_move_iterator(bundle.begin()),
                       std::make_move_iterator(bundle.end()));
        bundle.clear();
        changed.notify_all();
      }
    }
  }

  // Waits until `ready` or the failure of the file that is taken from.
  template <class Ready>
  void wait_for(MutexLock& lock, const Ready& ready) ENTRAIN_REQUIRES(mutex) {
    FileOnTheWay& file = files.at(taken);
    changed.wait(lock.native(), [&] { return ready(file) || file.failure != nullptr; });
    if (!ready(file)) {
      std::rethrow_exception(file.failure);
    }
  }

  const std::vector<FileToMeasure> given;
  const Options options;
  Mutex mutex;
  std::condition_variable changed;
  std::vector<FileOnTheWay> files ENTRAIN_GUARDED_BY(mutex);
  std::size_t next_unread ENTRAIN_GUARDED_BY(mutex) = 0;
  std::size_t taken ENTRAIN_GUARDED_BY(mutex) = 0;  // the file that samples are taken from
  bool begun ENTRAIN_GUARDED_BY(mutex) = false;     // next_file() was called
  bool stopped ENTRAIN_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;
};

MeasuredFiles::MeasuredFiles(std::vector<FileToMeasure> files, Options options)
    : state_(std::make_unique<State>(std::move(files), std::move(options))) {}

MeasuredFiles::~MeasuredFiles() = default;

MeasuredFile MeasuredFiles::next_file() {
  MutexLock lock(state_->mutex);
  if (std::exchange(state_->begun, true)) {
    ENTRAIN_INVARIANT(state_->files.at(state_->taken).samples.empty(), "samples that nobody took");
    ++state_->taken;
    state_->changed.notify_all();
  }
  state_->wait_for(lock, [](const FileOnTheWay& file) { return file.file.has_value(); });
  return *state_->files.at(state_->taken).file;
}

MeasuredSample MeasuredFiles::next_sample() {
  MutexLock lock(state_->mutex);
  state_->wait_for(lock, [](const FileOnTheWay& file) { return !file.samples.empty(); });
  std::deque<MeasuredSample>& samples = state_->files.at(state_->taken).samples;
  MeasuredSample result = std::move(samples.front());
  samples.pop_front();
  if (samples.size() + 1 == kMostHeld) {
    state_->changed.notify_all();
  }
  return result;
}

}  // namespace entrain
