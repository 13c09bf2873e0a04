"""README.md: the input pipeline, the step, the demo, a pod."""

from docs.figures.sentences import newest, read, says, spread

INPUT = newest("input", "imagenet-others")
STEP = newest("step", "step")["cases"]
DEMO = [run for run in newest("demo")["runs"] if run["epochs"] == 8][-1]
DEMO_OF_0_1_0 = read("demo/2026-11-15-demo.json")
ACCURACY, MUON = (read(f"accuracy/{row}.json")["runs"][0] for row in ("baseline", "cifar10"))
POD = {(row["program"], row["images_per_core"]): row["whole_cycles"] for row in newest("plan", "pod-v3")["rows"]}

RATES, RATIOS = INPUT["threads"]["2"], INPUT["ratios"]["2"]
RESNET50, RESNET7 = STEP["resnet50"], STEP["cifar"]

PAGES = {
    "README.md": [
        says(
            "tuned on, 2 threads | {:,.0f} images/s | tf.data {:,.0f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RATES["podium"], RATES["tfdata"], *spread(RATIOS["tfdata"]["podium"])),
        ),
        says(
            "| | | tf.data, same quality {:,.0f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RATES["tfdata_same"], *spread(RATIOS["tfdata_same"]["podium"])),
        ),
        says(
            "| | | DALI, antialiased {:,.0f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RATES["dali"], *spread(RATIOS["dali"]["podium"])),
        ),
        says(
            "| the same without seek indexes | {:,.0f} images/s | tf.data {:,.0f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RATES["podium_whole"], RATES["tfdata"], *spread(RATIOS["tfdata"]["podium_whole"])),
        ),
        says(
            "| input from the pixel cache | {:,.0f} images/s | tf.data {:,.0f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RATES["podium_pixels"], RATES["tfdata"], *spread(RATIOS["tfdata"]["podium_pixels"])),
        ),
        says(
            "batch 16, fp32 | {:.1f} images/s | torch.compile {:.1f} | {:.2f} ({:.2f}–{:.2f}) | "
            "| | | PyTorch eager {:.1f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RESNET50["podium"]["median"], RESNET50["torch_compile"]["median"]),
            *(*spread(RESNET50["ratio_to_torch_compile"]), RESNET50["pytorch"]["median"]),
            *spread(RESNET50["ratio_to_pytorch"]),
        ),
        says(
            "batch 128, fp32 | {:,.0f} images/s | PyTorch eager {:.0f} | {:.2f} ({:.2f}–{:.2f}) | "
            "| | | torch.compile {:.0f} | {:.2f} ({:.2f}–{:.2f}) |",
            *(RESNET7["podium"]["median"], RESNET7["pytorch"]["median"]),
            *(*spread(RESNET7["ratio_to_pytorch"]), RESNET7["torch_compile"]["median"]),
            *spread(RESNET7["ratio_to_torch_compile"]),
        ),
        says(
            "demo trains to {:.1f} % in {:.0f} s on two AVX2 cores (0.1.0: {:.0f} s)",
            *(100 * DEMO["accuracy"], DEMO["train_seconds"], DEMO_OF_0_1_0["train_seconds"]),
        ),
        says(
            "Recipe `cifar10-sgd` reached {:.1f} % in {:.0f} minutes",
            *(100 * ACCURACY["accuracy"], ACCURACY["train_seconds"] / 60),
        ),
        says(
            "`cifar10` reached {:.1f} % of CIFAR-10 from one seed, in {:.2f} PFLOP of work",
            *(100 * MUON["accuracy"], MUON["train_flops"] / 1e15),
        ),
        says(
            "On a v3 pod the step takes {:.0f} % fewer cycles than plain Flax with LARS",
            100 * (1 - POD["Podium", 16] / POD["flax, optax.lars", 16]),
        ),
    ]
}
