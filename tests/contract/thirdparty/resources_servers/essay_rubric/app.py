# SPDX-License-Identifier: Apache-2.0
from nemo_gym.openai_utils import NeMoGymResponseOutputMessage, NeMoGymResponseOutputText
from resources_servers.rubric_family.app import RubricServer, RubricVerifyRequest, RubricVerifyResponse


class EssayVerifyRequest(RubricVerifyRequest):
    minimum_words: int = 1


class EssayServer(RubricServer[EssayVerifyRequest]):
    def text_of(self, body: EssayVerifyRequest) -> str:
        return " ".join(
            part.text
            for item in body.response.output
            if isinstance(item, NeMoGymResponseOutputMessage)
            for part in item.content
            if isinstance(part, NeMoGymResponseOutputText)
        )

    async def verify(self, body: EssayVerifyRequest) -> RubricVerifyResponse:
        result = await super().verify(body)
        if len(self.text_of(body).split()) < body.minimum_words:
            result.reward = 0.0
            result.notes.append("too short")
        return result


if __name__ == "__main__":
    EssayServer.run_webserver()
