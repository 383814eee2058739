// Forms of convolutions: the rules of the two targets, and what a file of choices changes.

// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-select-kernels' | filecheck %s --check-prefix=CPU
// RUN: trc-opt %s -p 'plan-create-compile-specs{precision=amp-fp16},plan-select-kernels{target=cuda}' | filecheck %s --check-prefix=CUDA
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-select-kernels{target=cuda}' | filecheck %s --check-prefix=SINGLE
// RUN: echo '{"conv2": "wgrad_norm+stats", "bn3": "materialised"}' > %t.json
// RUN: trc-opt %s -p 'plan-create-compile-specs{precision=amp-fp16},plan-select-kernels{target=cuda choices="%t.json"}' | trc-opt | filecheck %s --check-prefix=CHOSEN
// RUN: echo '{"conv1": "stats"}' > %t.stem.json
// RUN: not trc-opt %s -p 'plan-create-compile-specs{precision=amp-fp16},plan-select-kernels{target=cuda choices="%t.stem.json"}' --no-reproducer 2>&1 | filecheck %s --check-prefix=STEM

// CPU: arch.cbr %x {{.*}} parts ["conv1", "bn1", "relu1"] first forms ["conv1 = stats"] : tensor<?x4x4x16xf32>
// CPU-NEXT: arch.conv {{.*}} layer "conv2" forms ["conv2 = stats+norm+wgrad_norm"] : tensor<?x4x4x32xf32>
// CPU-NEXT: arch.bn2d {{.*}} layer "bn2" : tensor
// CPU-NEXT: arch.conv {{.*}} layer "conv3" forms ["conv3 = stats+norm+wgrad_norm"]
// CPU: arch.inverted_residual {{.*}} forms ["conv4 = stats+norm+wgrad_norm", "conv5 = stats+norm+wgrad_norm"]
// CPU: arch.gap_fc {{.*}} parts ["gap1", "fc1"] : tensor

// A stem of four channels, an input without rectifier, a depthwise convolution; relu6 has no prologue (cuDNN forgets the clip).
// CUDA: arch.cbr %x {{.*}} forms ["conv1 = plain"]
// CUDA-NEXT: arch.conv {{.*}} layer "conv2" forms ["conv2 = stats+norm+wgrad_norm"]
// CUDA: arch.conv {{.*}} layer "conv3" forms ["conv3 = stats"]
// CUDA: arch.inverted_residual {{.*}} forms ["conv4 = plain", "conv5 = stats"]

// SINGLE: forms ["conv1 = plain"]
// SINGLE-NEXT: forms ["conv2 = plain"]

// CHOSEN: arch.conv {{.*}} layer "conv2" forms ["conv2 = stats+wgrad_norm"]
// CHOSEN: arch.conv {{.*}} layer "conv3" forms ["conv3 = plain"]
// CHOSEN-NEXT: arch.bn2d {{.*}} layer "bn3" forms ["bn3 = materialised"]

// STEM: layer 'conv1': form 'stats' is not possible here on cuda; the most is plain

arch.model @net(%x: tensor<?x4x4x4xf32>) {
  %0 = arch.cbr %x {out_channels = 16, kernel = 3, padding = 1} layer "conv1" parts ["conv1", "bn1", "relu1"] first : tensor<?x4x4x16xf32>
  %1 = arch.conv %0 {out_channels = 32, kernel = 1} layer "conv2" : tensor<?x4x4x32xf32>
  %2 = arch.bn2d %1 layer "bn2" : tensor<?x4x4x32xf32>
  %3 = arch.conv %2 {out_channels = 32, kernel = 1} layer "conv3" : tensor<?x4x4x32xf32>
  %4 = arch.bn2d %3 layer "bn3" : tensor<?x4x4x32xf32>
  %5 = arch.relu6 %4 layer "relu2" : tensor<?x4x4x32xf32>
  %6 = arch.inverted_residual %5 {out_channels = 16} layer "conv4" parts ["conv4", "bn4", "relu3", "conv5", "bn5"] : tensor<?x4x4x16xf32>
  %7 = arch.gap_fc %6 {out_features = 3} layer "gap1" parts ["gap1", "fc1"] : tensor<?x1x1x3xf32>
  %8 = arch.softmax_ce %7 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %8
}
