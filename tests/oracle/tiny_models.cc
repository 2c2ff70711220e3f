#include "tests/oracle/tiny_models.h"

namespace entrain::oracle {

ModelSpec tiny_model(int encoders, int encoder_layers, int llm_layers) {
  ModelSpec model;
  model.name = "tiny";
  for (int e = 0; e < encoders; ++e) {
    EncoderSpec encoder;
    encoder.name = e == 0 ? "vision" : "audio";
    encoder.modality = e == 0 ? Modality::kVision : Modality::kAudio;
    encoder.num_layers = encoder_layers;
    encoder.hidden = 16;
    encoder.num_heads = 2;
    encoder.intermediate = 16;
    model.encoders.push_back(encoder);
  }
  model.llm.num_layers = llm_layers;
  model.llm.hidden = 16;
  model.llm.num_heads = 2;
  model.llm.num_kv_heads = 1;
  model.llm.head_dim = 8;
  model.llm.intermediate = 16;
  model.llm.vocab_size = 32;
  return model;
}

ModelSpec small_model() {
  ModelSpec model;
  model.name = "small";
  EncoderSpec vision;
  vision.name = "vision";
  vision.num_layers = 2;
  vision.hidden = 8;
  vision.num_heads = 2;
  vision.intermediate = 20;
  vision.patch_size = 2;
  vision.merge_size = 2;
  EncoderSpec audio = vision;
  audio.name = "audio";
  audio.modality = Modality::kAudio;
  model.encoders = {vision, audio};
  model.llm.num_layers = 3;
  model.llm.hidden = 16;
  model.llm.num_heads = 4;
  model.llm.num_kv_heads = 2;
  model.llm.head_dim = 6;
  model.llm.intermediate = 32;
  model.llm.vocab_size = 100;
  return model;
}

Profile uniform_profile(const ModelSpec& model,
                        const CostCurve& forward,
                        const CostCurve& backward_input,
                        const CostCurve& backward_weight) {
  Profile profile;
  profile.device = "test";
  for (int module = 0; module < model.num_modules(); ++module) {
    for (int layer = 0; layer < num_layers(model, module); ++layer) {
      LayerProfile entry;
      entry.module = module_name(model, module);
      entry.kind = layer_kind(model, module, layer);
      entry.forward = forward;
      entry.backward_input = backward_input;
      entry.backward_weight = backward_weight;
      profile.layers.push_back(entry);
    }
  }
  return profile;
}

}  // namespace entrain::oracle
