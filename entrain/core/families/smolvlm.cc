// SmolVLM and Idefics3: SigLIP, blocks of patches merged by pixel shuffle, one matrix, and Llama.
//
// A shuffled row is our merged row: the tokens of a block, row by row.
//
// Source  arXiv 2408.12637, arXiv 2504.05299 and the models' code in transformers.
#include <algorithm>

#include <fmt/format.h>

#include "entrain/core/families/family.h"

namespace entrain {
namespace {

// The original finds a patch's row of the table from its fraction of the image, in float32, which
// for some sides is the neighbour's row.
bool finds_its_own_rows(int side) {
  const double step = 1.0 / side;
  const float fraction = 1.0F / static_cast<float>(side);
  for (int i = 0; i < side; ++i) {
    const float place = std::min(static_cast<float>(i) * fraction, static_cast<float>(1.0 - 1e-6));
    int row = 0;
    while (row + 1 < side && static_cast<float>(step + row * step) <= place) {
      ++row;
    }
    if (row != i) {
      return false;
    }
  }
  return true;
}

HfModel read_smolvlm(HfConfig config) {
  HfModel result;
  EncoderSpec vision;
  vision.num_layers = 12;
  vision.hidden = 1152;
  vision.num_heads = 16;
  vision.intermediate = 3072;
  vision.norm_epsilon = 1e-6;
  vision.activation = Activation::kGeluTanh;
  vision.patch_size = 32;
  vision.patch_bias = true;
  HfConfig tower = config.object("vision_config");
  read_vit_config(tower, vision, 224);
  // How processors cut images, which preprocessor_config.json repeats.
  tower.harmless({"size", "max_image_size"});
  if (!finds_its_own_rows(vision.table_side)) {
    tower.fail("image_size",
               fmt::format("{} patches a side given; for these the original mistakes rows "
                           "of its table of positions, which cannot be represented",
                           vision.table_side));
  }
  tower.finish();
  vision.merge_size = config.optional("scale_factor", 2);
  result.tiling = TilingSpec::Kind::kLongestEdge;
  ProjectorSpec& projector = vision.projector;
  projector.norm_tokens = true;  // post_layernorm
  projector.num_matrices = 1;
  projector.bias = false;
  LlmSpec& llm = result.model.llm;
  llm = read_text_model(config.object("text_config"));
  read_tied(config, llm);
  const std::string around = "<fake_token_around_image>";
  result.image_text = {.token = "<image>",
                       .token_id = read_token_id(config, {"image_token_id"}),
                       .single = around + "<global-img>{features}" + around,
                       .tile = around + "<row_{row}_col_{column}>{features}",
                       .row_end = "\n",
                       .whole = "\n" + around + "<global-img>{features}",
                       .after = around};
  config.harmless({"pad_token_id",
                   "_pad_token_id",
                   "vocab_size",
                   "use_cache",
                   "initializer_range",
                   "_attn_implementation",
                   "bos_token_id",
                   "eos_token_id",
                   "transformers.js_config",
                   "use_reentrant_checkpointing"});
  config.finish();
  result.model.encoders = {vision};
  result.shapes["visual.patch_embed.proj.weight"] = patch_kernel_shape(vision);
  HfModel::Spelling spelling;
  const std::string tower_name = "model.vision_model.";
  spelling.prefixes = {{"visual.patch_embed.proj.", tower_name + "embeddings.patch_embedding."},
                       {"visual.positions.", tower_name + "embeddings.position_embedding."},
                       {"visual.blocks.", tower_name + "encoder.layers."},
                       {"visual.merger.ln_q.", tower_name + "post_layernorm."},
                       {"visual.merger.mlp.2.", "model.connector.modality_projection.proj."},
                       {"model.", "model.text_model."}};
  spelling.parts = vit_parts();
  result.spellings = {spelling};
  return result;
}

}  // namespace

Family smolvlm_family() {
  return {"SmolVLM, Idefics3",
          {"SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration"},
          {"smolvlm", "idefics3"},
          read_smolvlm};
}

}  // namespace entrain
