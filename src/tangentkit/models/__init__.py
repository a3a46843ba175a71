"""Reference networks: the architectures of the studies, their initializations and trained checkpoints.

A network is built by one call, which draws its weights from `seed` (an integer, a `Key` or a
`torch.Generator`) and never touches torch's global generator; most are plain `nn.Sequential`s with named
layers. `init` chooses another initialization, and every init also redraws any module in place. Under
`torch.device("meta")` networks of any size are built without memory, to be counted or planned for.

    standard      mlp, lenet, lenet5, alexnet, resnet18, cifar_resnet, poisoning_cnn, TransformerClassifier
    scaled        arora_mlp, wang_mlp, two_layer (NTK parameterization); mnist2_mlp, mnist2_cnn, cifar2_cnn
    wrapped       Centered: a network minus its initial output
    trained       load_cifar_resnet
    inits         pytorch_default, lecun_normal, glorot, arora_ntk, yang_salman, standard_normal,
                  truncated_normal
"""

from tangentkit.models.alexnet import alexnet as alexnet
from tangentkit.models.centered import Centered as Centered
from tangentkit.models.checkpoints import CIFAR_RESNET_MEAN as CIFAR_RESNET_MEAN
from tangentkit.models.checkpoints import CIFAR_RESNET_STD as CIFAR_RESNET_STD
from tangentkit.models.checkpoints import load_cifar_resnet as load_cifar_resnet
from tangentkit.models.cifar_resnet import cifar_resnet as cifar_resnet
from tangentkit.models.inits import Init as Init
from tangentkit.models.inits import Seed as Seed
from tangentkit.models.inits import arora_ntk as arora_ntk
from tangentkit.models.inits import glorot as glorot
from tangentkit.models.inits import lecun_normal as lecun_normal
from tangentkit.models.inits import pytorch_default as pytorch_default
from tangentkit.models.inits import standard_normal as standard_normal
from tangentkit.models.inits import truncated_normal as truncated_normal
from tangentkit.models.inits import yang_salman as yang_salman
from tangentkit.models.layers import normalized_relu as normalized_relu
from tangentkit.models.layers import normalized_sigmoid as normalized_sigmoid
from tangentkit.models.layers import normalized_softplus as normalized_softplus
from tangentkit.models.layers import normalized_tanh as normalized_tanh
from tangentkit.models.lenet import lenet as lenet
from tangentkit.models.lenet import lenet5 as lenet5
from tangentkit.models.mlp import mlp as mlp
from tangentkit.models.ntk_mlp import arora_mlp as arora_mlp
from tangentkit.models.ntk_mlp import two_layer as two_layer
from tangentkit.models.ntk_mlp import wang_mlp as wang_mlp
from tangentkit.models.poisoning import poisoning_cnn as poisoning_cnn
from tangentkit.models.postscaled import cifar2_cnn as cifar2_cnn
from tangentkit.models.postscaled import mnist2_cnn as mnist2_cnn
from tangentkit.models.postscaled import mnist2_mlp as mnist2_mlp
from tangentkit.models.resnet import resnet18 as resnet18
from tangentkit.models.transformer import TransformerClassifier as TransformerClassifier
